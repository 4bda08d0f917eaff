"""The demo's stage: a result that does not hold ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

import pytest

from gpustack_demo.examples.stage import Stage, Surprise


def test_a_check_that_does_not_hold_is_a_surprise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    stage.check(True, "this is so")
    assert "✔ this is so" in capsys.readouterr().out
    with pytest.raises(Surprise, match="this is not"):
        stage.check(False, "this is not")


@pytest.mark.parametrize(("code", "expected"), [(3, 0), (0, 3)])
def test_another_exit_code_is_a_surprise(tmp_path: Path, code: int, expected: int) -> None:
    with pytest.raises(Surprise, match=f"exit code {code}, not {expected}"):
        Stage(tmp_path).run(sys.executable, "-c", f"raise SystemExit({code})", code=expected)


def test_a_command_is_shown_as_it_would_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    assert stage.run(sys.executable, "-c", "print('a b')", into="out file.txt") == "a b\n"
    assert (tmp_path / "out file.txt").read_text(encoding="utf-8") == "a b\n"
    assert f"$ {quote(sys.executable)} -c 'print('\"'\"'a b'\"'\"')'" in capsys.readouterr().out


def test_a_change_of_what_is_not_there_is_a_surprise(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("a.yaml", "one: 1\n")
    stage.edit("a.yaml", ("1", "2"))
    stage.append("a.yaml", "two: 2\n")
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "one: 2\ntwo: 2\n"
    with pytest.raises(Surprise, match="does not hold"):
        stage.edit("a.yaml", ("three", "four"))


def test_only_matching_lines_are_printed_and_all_are_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    stage.run(sys.executable, "-c", "print('one\\ntwo')", only="^two")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("$ ")
    assert lines[1:] == ["two"]
    assert "one\ntwo\n" in stage.log.read_text(encoding="utf-8")


def test_commands_of_the_demo_leave_no_record_of_the_user(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.run(sys.executable, "-c", "from gpustack.base.files import state_dir\nstate_dir().mkdir(parents=True)")
    assert (tmp_path / ".state/gpustack").is_dir()


def test_a_step_can_be_in_the_log_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    stage.run(sys.executable, "-c", "print('one')", only=None)
    assert capsys.readouterr().out == ""
    assert "one\n" in stage.log.read_text(encoding="utf-8")


def test_another_exit_code_prints_the_complete_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Surprise):
        Stage(tmp_path).run(sys.executable, "-c", "print('one\\ntwo'); raise SystemExit(3)", only=None)
    assert "one\ntwo\n" in capsys.readouterr().out


def test_long_lines_are_wrapped_and_tables_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    stage.run(sys.executable, "-c", "print('word ' * 30); print('| ' + 'cell ' * 30)", only="word|cell")
    lines = capsys.readouterr().out.splitlines()
    text = [line for line in lines if "word word" in line and "print" not in line]
    assert len(text) == 2
    assert max(map(len, text)) <= 100
    assert text[1].startswith("    word")
    assert any(line.startswith("| cell") and len(line) > 100 for line in lines)


def test_a_program_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    program = tmp_path / "elsewhere" / "tell"
    program.write_text("#!/bin/sh\necho told\n")
    program.chmod(0o755)
    stage = Stage(tmp_path)
    stage.program(program)
    assert stage.run("tell") == "told\n"


def test_what_runs_beside_the_stage_ends_with_it(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stream = stage.enter((tmp_path / "log").open("w"))
        assert not stream.closed
    assert stream.closed


def test_a_state_sees_content_mode_and_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "host").mkdir()
    file = tmp_path / "host/file"
    file.write_text("a", encoding="utf-8")
    states = [stage.state("host")]
    file.chmod(0o600)
    states.append(stage.state("host"))
    file.write_text("b", encoding="utf-8")
    states.append(stage.state("host"))
    assert states[0] != states[1] != states[2]

"""The demo's stage: what is not as told ends it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpustack.errors import GpustackError
from gpustack_demo.embedded.environment import Environment
from gpustack_demo.examples import cloud, demo
from gpustack_demo.examples.stage import Stage, Surprise


def test_a_check_that_does_not_hold_is_a_surprise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    stage.check(True, "this is so")
    assert "✔ this is so" in capsys.readouterr().out
    with pytest.raises(Surprise, match="this is not"):
        stage.check(False, "this is not")


@pytest.mark.parametrize(("ends", "told"), [(3, 0), (0, 3)])
def test_another_exit_code_is_a_surprise(tmp_path: Path, ends: int, told: int) -> None:
    with pytest.raises(Surprise, match=f"exit code {ends}, not {told}"):
        Stage(tmp_path).run(sys.executable, "-c", f"raise SystemExit({ends})", code=told)


def test_a_command_is_shown_as_it_would_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path)
    said = stage.run(sys.executable, "-c", "print('a b')", into="out file.txt")
    assert said == "a b\n"
    assert (tmp_path / "out file.txt").read_text(encoding="utf-8") == "a b\n"
    assert f"$ {sys.executable} -c 'print('\"'\"'a b'\"'\"')'" in capsys.readouterr().out


def test_a_change_of_what_is_not_there_is_a_surprise(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("a.yaml", "one: 1\n")
    stage.edit("a.yaml", ("1", "2"))
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "one: 2\n"
    with pytest.raises(Surprise, match="does not hold"):
        stage.edit("a.yaml", ("three", "four"))


def test_a_long_output_is_shown_from_its_end_unless_it_is_a_surprise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (sys.executable, "-c", "print('one\\ntwo\\nthree'); raise SystemExit(3)")
    stage = Stage(tmp_path)
    stage.run(*command, code=3, last=1)
    assert "[…]\nthree\n" in capsys.readouterr().out
    with pytest.raises(Surprise):
        stage.run(*command, last=1)
    assert "one\ntwo\nthree\n" in capsys.readouterr().out


def test_snapshots_are_joined(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [{"hostname": name}]}))
    Stage(tmp_path).join("both.json", "a.json", "b.json")
    both = json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))
    assert both == {"gpustack_snapshot": 1, "hosts": [{"hostname": "a"}, {"hostname": "b"}]}


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


def test_a_surprise_ends_the_demo_and_keeps_its_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def chapter(stage: Stage) -> None:
        """A chapter"""
        stage.say("Something.")
        stage.check(False, "something is so")

    monkeypatch.setattr(demo, "CHAPTERS", (chapter,))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert demo.main([]) == 1
    assert "The demo did not go as told: something is so" in capsys.readouterr().err
    assert len(list(tmp_path.glob("gpustack-demo-*"))) == 1


def test_without_nova_the_first_half_is_played_and_the_rest_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(name: str, *, say: object) -> Environment:
        raise GpustackError("pip install failed", where="pip.log", remedy="check the network")

    def first(stage: Stage) -> None:
        """The first half"""
        stage.check(True, "hosts are ready")

    def second(stage: Stage) -> None:
        """The second half"""
        cloud.install(stage.progress)

    monkeypatch.setattr(cloud, "ensure", refuse)
    monkeypatch.setattr(demo, "CHAPTERS", (first, second))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert demo.main([]) == 3
    told = capsys.readouterr()
    assert "✔ hosts are ready" in told.out
    assert "pip install failed" in told.err
    assert "check the network" in told.err


def test_what_takes_long_gives_a_sign_of_life(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = object()
    said: list[str] = []

    def ensure(name: str, *, say: object) -> object:
        while len(said) < 2:
            pass
        return made

    monkeypatch.setattr(cloud, "_TICK", 0.01)
    monkeypatch.setattr(cloud, "ensure", ensure)
    monkeypatch.setattr(cloud, "ensure_templates", lambda environment, say: tmp_path)
    assert cloud.install(said.append) is made
    assert all("at it for" in text for text in said)


def test_a_demo_that_went_as_told_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "CHAPTERS", ())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert demo.main([]) == 0
    assert not list(tmp_path.iterdir())
    assert demo.main(["--keep"]) == 0
    assert len(list(tmp_path.iterdir())) == 1

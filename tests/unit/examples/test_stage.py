"""The demo's stage: what is not as told ends it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpustack.examples import demo
from gpustack.examples.stage import Stage, Surprise


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


def test_a_demo_that_went_as_told_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "CHAPTERS", ())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert demo.main([]) == 0
    assert not list(tmp_path.iterdir())
    assert demo.main(["--keep"]) == 0
    assert len(list(tmp_path.iterdir())) == 1

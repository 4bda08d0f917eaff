"""``gpustack history``: what it selects, and what it does with a damaged journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from support.journals import CHANGES, written


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    written(*[(made, ChangeResult.DONE) for made in CHANGES])


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert main(["history", "-f", "value", "-c", "State", *options]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ((), ["done"]),
        (("--object", "b"), ["done"]),
        (("--object", "z"), []),
        (("--since", "2020-01-01"), ["done"]),
        (("--since", "2999-01-01T08:00"), []),
    ],
)
def test_runs_are_selected_by_time_and_object(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], states: list[str]
) -> None:
    assert listed(capsys, *options) == states


def test_a_damaged_journal_is_reported_beside_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpustack" / "changes" / "0.jsonl").write_text("nothing\n")
    assert main(["history", "-f", "value", "-c", "State"]) == 0
    output = capsys.readouterr()
    assert output.out.split() == ["done"]
    assert "0.jsonl: line 1 is damaged" in output.err


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--since", "yesterday"]) == 2
    assert "'yesterday' is no time" in capsys.readouterr().err

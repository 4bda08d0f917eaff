"""``gpustack history``: what it selects, and what it does with a damaged journal."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.changes.host_run import recorded
from gpustack.cli.app import main
from gpustack.connect.playbooks.record import HostRecord, RunOutcome
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


@pytest.mark.parametrize(
    ("options", "out", "err"), [((), "", "nothing to list\n"), (("-q",), "", ""), (("-f", "json"), "[]\n", "")]
)
def test_without_changes_there_is_nothing_to_list(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], out: str, err: str
) -> None:
    assert main(["history", "--object", "z", *options]) == 0
    assert capsys.readouterr() == (out, err)


def test_a_damaged_journal_is_reported_beside_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpustack" / "changes" / "0.jsonl").write_text("nothing\n")
    assert main(["history", "-f", "value", "-c", "State"]) == 0
    output = capsys.readouterr()
    assert output.out.split() == ["done"]
    assert "0.jsonl: not a journal of gpustack" in output.err


@pytest.mark.parametrize(("at", "count"), [("", 2), ("yesterday", 2), ("2026-11-24T06:00:00", 1)])
def test_a_run_without_a_valid_time_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str, count: int
) -> None:
    (path,) = (tmp_path / "gpustack" / "changes").glob("*.jsonl")
    first, _, rest = path.read_text().partition("\n")
    (edited := path.with_stem("0")).touch(0o600)
    edited.write_text(f"{json.dumps({**json.loads(first), 'at': at})}\n{rest}")
    assert listed(capsys, "--since", "2026-11-25") == ["done"] * count


def test_a_line_that_is_none_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (tmp_path / "gpustack" / "changes").glob("*.jsonl")
    path.write_text(path.read_text().replace("{", '{"later": 1, ', 1))
    assert main(["history", path.stem]) == 15
    assert "a line does not belong to a journal: $.later: extra inputs are not permitted\n" in capsys.readouterr().err


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--since", "yesterday"]) == 2
    assert "'yesterday' is no time" in capsys.readouterr().err


def test_changes_of_gpus_by_0_1_0_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "gpustack" / "gpus.jsonl"
    lines = [
        {"at": "2026-11-20T08:00:00Z", "gpu": "gpu1 81:00.0", "kind": "set_inventory", "why": "w", "before": {}},
        {
            "at": "2026-11-20T08:00:01Z",
            "gpu": "gpu1 81:00.0",
            "kind": "switch_service",
            "why": "",
            "enabled": False,
        },
    ]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["history", "-f", "json", "--object", "81:00"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["ID"], row["Command"], row["State"]) for row in rows] == [
        ("gpus-2", "gpu disable", "unknown"),
        ("gpus-1", "gpu", "unknown"),
    ]
    record.write_text('{"at": 5}\n')
    assert listed(capsys) == ["done"]
    assert main(["history"]) == 0
    assert "line 1 is no change of a GPU" in capsys.readouterr().err


def test_runs_on_hosts_are_listed_and_undone_on_the_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    with recorded("host apply", None, ["gpu01", "gpu02"]) as note:
        note(HostRecord(host="gpu01", outcome=RunOutcome.DONE))
        note(HostRecord(host="gpu02", outcome=RunOutcome.UNREACHABLE, problem="no root"))
    with contextlib.suppress(OSError), recorded("host undo", None, ["gpu01"]):
        raise OSError
    assert main(["history", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)[:2]
    assert [(row["Command"], row["Done"], row["State"]) for row in rows] == [
        ("host undo", "0/1", "unfinished"),
        ("host apply", "1/2", "failed"),
    ]
    assert main(["undo", rows[1]["ID"]]) == 15
    assert "gpustack host undo gpu01 gpu02" in capsys.readouterr().err


def test_a_run_that_no_cloud_undoes_alone_has_no_next_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with recorded("host apply", None, ["gpu01"]) as note:
        note(HostRecord(host="gpu01", outcome=RunOutcome.DONE))
    of_hosts, of_cloud = sorted((tmp_path / "gpustack" / "changes").glob("*.jsonl"), reverse=True)
    assert main(["history", of_hosts.stem]) == 0
    assert "Next:" not in capsys.readouterr().err
    assert main(["history", of_cloud.stem]) == 0
    assert capsys.readouterr().err == f"Next: gpustack undo {of_cloud.stem} --check\n"

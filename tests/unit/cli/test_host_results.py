"""gpustack host results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.cli.app import main
from gpustack.connect.playbooks.record import HostRecord, RunOutcome
from gpustack.connect.playbooks.results import RunResults, SpecSeen, save

SPEC = SpecSeen(path="gpustack.yaml", sha256="1" * 64, hosts=("gpu01", "gpu02", "gpu03"))
ERROR = {"severity": "error", "code": "GPU013", "place": "gpu03", "message": "m", "remedy": "move the card"}


def planned(name: str) -> HostRecord:
    return HostRecord(host=name, text=f"{name}: 2 files", todo=True, reboot=("why",), planned={"file": 2, "reboot": 1})


def left(directory: Path, playbook: str, *hosts: HostRecord, **attributes: bool) -> None:
    save(RunResults(playbook=playbook, specs=(SPEC,), hosts=hosts, **attributes), directory)


def test_equal_plans_are_one_group_and_the_most_severe_result_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = HostRecord(host="gpu03", outcome=RunOutcome.REFUSED, problem="the plan is refused", findings=(ERROR,))
    left(tmp_path, "plan", planned("gpu01"))
    left(tmp_path, "plan", planned("gpu02"), refused)
    assert main(["host", "results", str(tmp_path)]) == 13
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "gpu[01:02] (2 hosts): 2 files",
        "",
        "gpu[01:02] (2 hosts): planned (2 files, needs a reboot)",
        "gpu03: refused (GPU013)",
        "",
        "Total: 3 hosts; 2 to change, 1 blocked, 2 to reboot",
    ]
    assert "gpu03: the plan is refused\n  → move the card" in err


def test_each_host_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(tmp_path, "plan", *map(planned, SPEC.hosts))
    assert main(["host", "results", str(tmp_path), "--each"]) == 0
    assert capsys.readouterr().out.count("planned (2 files, needs a reboot)") == 3
    assert main(["host", "results", str(tmp_path), "-f", "json"]) == 0
    assert [(row["host"], row["outcome"], row["group"]) for row in json.loads(capsys.readouterr().out)] == [
        (name, "planned", "gpu[01:03]") for name in SPEC.hosts
    ]


def test_a_dry_run_and_a_verification_have_their_own_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    would = [HostRecord(host=name, checked=True, changed=True, outcome=RunOutcome.DONE) for name in SPEC.hosts]
    left(tmp_path / "a", "prepare", *would, checked=True)
    assert main(["host", "results", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert "would change" in out
    assert "3 to change, 0 blocked" in out
    (tmp_path / "b").mkdir()
    ready = [
        HostRecord(host=name, text=f"{name}: ready", verified=True, outcome=RunOutcome.DONE) for name in SPEC.hosts
    ]
    left(tmp_path / "b", "verify", *ready)
    assert main(["host", "results", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out == "gpu[01:03] (3 hosts): ready\n\nTotal: 3 hosts; 3 ready, 0 not ready\n"


def test_a_host_without_a_record_and_a_directory_without_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["host", "results", str(tmp_path)]) == 15
    left(tmp_path, "plan", planned("gpu01"), planned("gpu03"))
    assert main(["host", "results", str(tmp_path)]) == 12
    assert "gpu02: in no record" in capsys.readouterr().err


def test_a_record_named_twice_is_read_once(tmp_path: Path) -> None:
    path = save(RunResults(playbook="undo", hosts=(planned("gpu01"),)), tmp_path)
    assert main(["host", "results", str(path), str(tmp_path)]) == 0
    assert main(["host", "results", str(path), str(path.with_name("gone.json"))]) == 15

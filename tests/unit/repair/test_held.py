"""What the plan prints beside its verdicts: devices held by work in progress, when to plan again, and who answers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpustack.cli.app import main
from gpustack.repair.hypervisor import Hypervisors, Usage
from support.cellfile import CellFile, ago, nova_conf

GPU = "0000:81:00.0"


def messages(cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["cleanup", "plan", "--config-file", str(nova_conf(tmp_path, {"cell1": cell.url})), *arguments])
    return capsys.readouterr().err


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell_file.host("gpu2", seen=5)
    return cell_file


def test_devices_held_by_work_in_progress(cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = cell.host("gpu1", seen=5)
    cell.instance("vm", "gpu2", task_state="resize_migrating", updated_at=ago(600))
    for number, age in ((1, 900), (2, 600)):
        address = f"0000:8{number}:00.0"
        cell.device(node, address, "allocated", instance_uuid="vm", request_id="x", updated_at=ago(age))
    err = messages(cell, tmp_path, capsys)
    assert "work in progress holds 2 devices; the oldest, gpu1 0000:81:00.0, since " in err
    assert "plan again after" not in err


def test_the_grace_time_and_when_it_ends(cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    updated = ago(100)
    cell.instance("vm", "gpu2")
    cell.device(cell.host("gpu1"), GPU, "allocated", instance_uuid="vm", request_id="x", updated_at=updated)
    err = messages(cell, tmp_path, capsys)
    assert f"1 changed within the grace time: plan again after {updated + timedelta(seconds=300):%F %H:%M}" in err
    assert "work in progress" not in err


def test_who_answers_is_shown(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"gpu1": Usage(gap="no SSH connection: refused"), "gpu2": Usage()}
    monkeypatch.setattr(Hypervisors, "ask", lambda _self, host: answers[host])
    cell.instance("vm", "gpu2", wants=())
    cell.move("vm", "gpu1", "gpu2", "error")
    cell.device(cell.host("gpu1"), GPU, "allocated", instance_uuid="vm", request_id="x")
    assert "apply asks over SSH, as root or with --sudo: gpu1" in messages(cell, tmp_path, capsys)
    (tmp_path / "api.sqlite").unlink()
    err = messages(cell, tmp_path, capsys, "--ask-hosts")
    assert " of 2 hosts" in err
    assert "gpu1 can't be asked: no SSH connection: refused" in err
    assert "class B (migration-pinned) on gpu1, undecided" in err  # the plan is settled by the answers


def test_hosts_are_asked_as_their_inventory_says(
    cell: CellFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in ("gpu1", "gpu2", "gpu3"):
        cell.instance(f"vm-{host}", host)
        cell.device(cell.host(host, seen=5), GPU, "allocated", instance_uuid=f"vm-{host}", request_id="x")
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "gpu1 ansible_connection=local gpustack_root=/\n"
        f"gpu2 ansible_connection=local gpustack_root={tmp_path}\n"
        "gpu3 ansible_host=127.0.0.1 ansible_port=1\n"
    )
    err = messages(cell, tmp_path, capsys, "--ask-hosts", "-i", str(inventory))
    assert "the machine that answered as gpu1 calls itself" in err
    assert "gpu2 can't be asked: gpustack_root of the inventory is a directory, in which no guest runs" in err
    assert "gpu3 can't be asked: can't be reached: Connection refused (127.0.0.1 port 1)" in err

"""Whether nova-compute may be restarted: the devices in use beside the rows. The hosts' answers are data here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.repair.plugin_api import Restart, checked, objections
from support.cellfile import CellFile, ago, nova_conf

GPU, OTHER = "0000:81:00.0", "0000:82:00.0"
FUNCTIONS = {GPU: "10de:11b4", OTHER: "10de:20b5", "0000:83:00.0": "10de:11b4"}
OWNED = {"instance_uuid": "vm", "request_id": "r1"}


def answer(**changes: object) -> dict[str, Any]:
    """A host on which the instance uses its GPU."""
    usual = {"used": {GPU: ["vm"]}, "unread": [], "functions": FUNCTIONS, "libvirt": True, "names": ["gpu1"]}
    return {**usual, **changes}


IDLE = {"used": {}}


def held(cell: CellFile) -> int:
    node = cell.host("gpu1", seen=5)
    cell.instance("vm", "gpu1")
    return cell.device(node, GPU, "allocated", **OWNED)


def freed(cell: CellFile) -> None:
    """By hand: the nova-compute that runs still has the device in its memory."""
    row = held(cell)
    with cell.engine.begin() as connection:
        values = "status = 'available', instance_uuid = NULL, request_id = NULL"
        connection.execute(sa.text(f"UPDATE pci_devices SET {values} WHERE id = {row}"))


def of_another_instance(cell: CellFile) -> None:
    node = cell.host("gpu1", seen=5)
    cell.device(node, GPU, "available")


def without_a_row(cell: CellFile) -> None:
    cell.device(cell.host("gpu1", seen=5), "0000:83:00.0")


def moves(cell: CellFile) -> None:
    held(cell)
    cell.host("gpu2", seen=5)
    cell.move("vm", "gpu1", "gpu2", "running", updated_at=ago(60))


def runs_elsewhere(cell: CellFile) -> None:
    """Its live migration ended in error: the domain may be on the other host."""
    held(cell)
    cell.host("gpu2", seen=5)
    cell.move("vm", "gpu1", "gpu2", "error")
    with cell.engine.begin() as connection:
        connection.execute(sa.text("UPDATE migrations SET migration_type = 'live-migration'"))


def nobody(cell: CellFile) -> None:
    cell.host("gpu2", seen=5)


@pytest.mark.parametrize(
    ("make", "changes", "code", "text"),
    [
        (held, {}, "", ""),
        (held, {"used": {GPU: ["", "vm"]}}, "", ""),
        (held, IDLE, "", ""),
        (held, {"unread": [["/proc/7/fd", "not root"]]}, "GPU387", "could not read /proc/7/fd"),
        (held, {"names": ["gpu9"]}, "GPU387", "calls itself gpu9"),
        (held, {"used": {GPU: ["thief", "vm"]}}, "GPU386", "in use by thief"),
        (held, {"used": "no mapping"}, "GPU387", "not a list of devices"),
        (freed, {}, "GPU386", "lacks a device"),
        (freed, IDLE, "GPU386", "lacks a device"),
        (of_another_instance, {}, "GPU386", "would offer it when it starts"),
        (without_a_row, {"used": {OTHER: ["hand-made"]}}, "GPU386", f"{OTHER} is in use and has no row"),
        (moves, {}, "GPU386", "is under way (running)"),
        (runs_elsewhere, IDLE, "GPU386", "may start the instance a second time"),
        (nobody, {}, "GPU387", "no cell has a compute node of gpu1"),
        (nobody, IDLE, "", ""),
    ],
)
def test_a_restart_is_permitted_only_beside_rows_of_all_devices_in_use(
    tmp_path: Path, make: Callable[[CellFile], object], changes: dict[str, Any], code: str, text: str
) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    make(cell)
    cell.insert("services", host="ctl", binary="nova-conductor", disabled=False, forced_down=False, last_seen_up=ago(5))
    due = Restart(host="gpu1", answer=answer(**changes), managed=frozenset({"10de:20b5"}))
    refusals = list(objections(due, [nova_conf(tmp_path, {"cell1": cell.url})]))
    assert {finding.code for finding in refusals} == ({code} if code else set()), refusals
    assert text in " ".join(finding.message for finding in refusals)


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        (IDLE, "", ""),
        ({**IDLE, "libvirt": False, "names": []}, "", ""),
        ({}, "GPU385", GPU),
        ({**IDLE, "unread": [["/proc/7/fd", "not root"]]}, "GPU385", "could not read /proc/7/fd"),
    ],
)
def test_without_databases_only_a_host_that_uses_nothing_is_restarted(
    changes: dict[str, Any], code: str, text: str
) -> None:
    refusals = list(objections(Restart(host="gpu1", answer=answer(**changes)), []))
    assert [finding.code for finding in refusals] == ([code] if code else [])
    assert text in " ".join(finding.message for finding in refusals)


def test_databases_that_cannot_be_read_permit_nothing(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(f"[api_database]\nconnection = sqlite:///{tmp_path}/none.sqlite\n")
    result = checked(Restart(host="gpu1", answer=answer(**IDLE)), [str(tmp_path / "nova.conf")], [])
    assert result["failed"]
    assert "GPU387" in result["text"]


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("changes", [IDLE, {}])
@pytest.mark.parametrize("broken", ["cell1", "cell2"])
def test_a_cell_that_cannot_be_read_permits_nothing(
    tmp_path: Path, broken: str, changes: dict[str, Any], lost: bool
) -> None:
    """The host's own cell has its rows; another one may have a second copy of the instance that holds the GPU."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("cell1", "cell2")}
    held(CellFile(urls["cell1"]))
    CellFile(urls["cell2"])
    if lost:
        (tmp_path / f"{broken}.sqlite").unlink()
    else:
        (tmp_path / f"{broken}.sqlite").write_bytes(b"no database" * 1000)
    due = Restart(host="gpu1", answer=answer(**changes))
    (refusal,) = objections(due, [nova_conf(tmp_path, urls)])
    assert refusal.code == "GPU387"
    assert f"cell {broken} (" in refusal.message


def test_the_operator_overrides_the_check_by_host() -> None:
    due = Restart(host="gpu1", answer=answer())
    assert checked(due, [], ["gpu2"])["failed"]
    result = checked(due, [], ["gpu1"])
    assert not result.get("failed")
    assert "GPU388" in result["text"]
    assert GPU in result["text"]

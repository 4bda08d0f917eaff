"""Allocations of devices to consumers that no cell knows, and below compute nodes without rows: told, not repaired."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpustack.cloud.placement import Known, Provider
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack.repair.rules import q_allocation_drift as drift
from support import neighbourhood
from support.allocation import CASE, judged, verdicts
from support.cellfile import CellFile, ago, nova_conf
from support.cleanup_runs import sql

Build = Callable[[CellFile, int], dict[str, int]]
"""Inserts rows of gpu1, whose compute node has this id; returns what Placement has allocated of its device."""
GPU = "0000:81:00.0"


def written(seconds: int) -> str:
    moment = neighbourhood.ago(seconds)
    assert moment is not None
    return format_datetime(moment)


SAID = {
    "allocations": {"gpu": {"resources": {}}, "other": {"resources": {}}},
    "project_id": "their-project",
    "user_id": "their-user",
}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Last-Modified": written(7 * 24 * 3600)}, "report"),
        ({"Last-Modified": written(20)}, "protected"),  # an instance may be being made: Nova allocates first
        ({}, "report"),
        ({"Last-Modified": "yesterday"}, "report"),
    ],
)
def test_a_consumer_that_no_cell_knows_is_reported_and_left_alone(headers: dict[str, str], status: str) -> None:
    verdict = judged(SAID, **headers)
    assert (verdict.status.value, verdict.repair) == (status, None)
    evidence = " ".join(verdict.evidence)
    assert "their-project" in evidence
    assert "their-user" in evidence
    assert "1 of other providers" in evidence
    if status == "report":
        assert "openstack server show stranger" in verdict.advice
        assert "resource provider allocation show stranger)" in verdict.advice
        assert "resource provider allocation unset --provider gpu stranger" in verdict.advice


@pytest.mark.parametrize(
    ("host", "status"),
    [("gpu1", "report"), ("GPU1", "report"), ("gpu1.example.org", "report"), ("gpu2", "stale")],
)
def test_an_instance_without_its_device_keeps_its_allocation(host: str, status: str) -> None:
    """The allocation may be all that keeps others from the device, under whatever name of the host the instance is."""
    (verdict,) = verdicts({**CASE, "owners": {"vm": {"host": host}}}, [{"vm": 1}])
    assert (verdict.status.value, verdict.repair is None) == (status, status == "report")
    assert ("see class L" in verdict.advice) == (status == "report")


def test_an_allocation_below_a_compute_node_without_any_row(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for name in ("gpu1", "gpu2", "gpu3"):
        cell.host(name, seen=3)
    cell.device(cell.host("gpu4", seen=3), "0000:81:00.0")
    for uuid, host in (("here", "gpu1"), ("elsewhere", "gpu4")):
        cell.instance(uuid, host, wants=())
    allocations = {"gpu1": {"here": 1}, "gpu2": {"elsewhere": 1}, "gpu3": {}}
    devices = [
        Provider(uuid=f"p-{name}", name=f"{name}_X", root=f"node-{name}", address="0000:82:00.0", held=of_node)
        for name, of_node in {**allocations, "another-cell": {"vm": 1}}.items()
    ]
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])

    verdicts = plan.leftovers_of(sources, sources.cells[0], Selection(), None, devices)  # type: ignore[arg-type]

    assert [(verdict.host, verdict.owner, verdict.status.value, verdict.repair) for verdict in verdicts] == [
        ("gpu1", "here", "report", None),
        ("gpu2", "elsewhere", "report", None),
    ]
    assert all("the device has no row" in verdict.because for verdict in verdicts)


RECENT = object()
"""The time of a write within the grace time, when the test runs."""


def timed(values: dict[str, object]) -> dict[str, object]:
    return {name: ago(20) if value is RECENT else value for name, value in values.items()}


def allocated_to_a_move(status: str, **move: object) -> Build:
    """A migration between two other hosts, whose allocation of gpu1's free device remains."""

    def build(cell: CellFile, node: int) -> dict[str, int]:
        cell.device(node, GPU)
        cell.instance("vm", "gpu2", wants=())
        cell.move("vm", "gpu2", "gpu3", status, **timed(move))
        sql(cell, "UPDATE migrations SET uuid = 'move'")
        return {"move": 1}

    return build


def allocated_to(uuid: str, *, row: dict[str, object], place: str = "gpu2", **instance: object) -> Build:
    """A device that Placement has allocated to an instance."""

    def build(cell: CellFile, node: int) -> dict[str, int]:
        cell.device(node, GPU, **{"status": "available", **timed(row)})  # type: ignore[arg-type]
        cell.instance("vm", place, **{"wants": (), **timed(instance)})  # type: ignore[arg-type]
        cell.instance("other", "gpu1", wants=("r1",))
        return {uuid: 1}

    return build


def taken_by(owner: str, status: str = "allocated") -> dict[str, object]:
    return {"status": status, "instance_uuid": owner, "request_id": "r1"}


def beside_its_own(cell: CellFile, node: int) -> dict[str, int]:
    cell.device(node, GPU)
    cell.device(node, "0000:82:00.0", **taken_by("vm"))  # type: ignore[arg-type]
    cell.instance("vm", "gpu1")
    return {"vm": 1}


def while_its_migration_holds_it(cell: CellFile, node: int) -> dict[str, int]:
    """A move within the host: the instance's row is here, and its old allocation is the migration's."""
    cell.device(node, GPU, **taken_by("vm"))  # type: ignore[arg-type]
    cell.instance("vm", "gpu1")
    cell.move("vm", "gpu1", "gpu2", "completed")
    sql(cell, "UPDATE migrations SET uuid = 'move'")
    return {"move": 1}


@pytest.mark.parametrize(
    ("build", "expected", "because"),
    [
        (allocated_to("vm", row=taken_by("vm"), place="gpu1", wants=("r1",)), [], ""),
        (allocated_to("vm", row=taken_by("vm", "claimed"), place="gpu1", wants=("r1",)), [], ""),
        (allocated_to("vm", row={}), ["Q stale"], "the row is not its, and Nova never takes such an allocation away"),
        (allocated_to("vm", row=taken_by("other")), ["Q stale"], "the row is not its"),
        (
            allocated_to("vm", row={"instance_uuid": "vm"}),
            ["Q protected"],
            "a row of the device still names the instance",
        ),
        (allocated_to("vm", row={"updated_at": RECENT}), ["Q protected"], "was written within the grace time"),
        (
            allocated_to("vm", row={}, updated_at=RECENT),
            ["Q protected"],
            "instance vm was written within the grace time",
        ),
        (allocated_to("vm", row={}, task_state="spawning", updated_at=RECENT), ["Q protected"], "(spawning)"),
        (allocated_to_a_move("completed"), ["Q stale"], "the row is not its"),
        (allocated_to_a_move("error"), ["Q protected"], "is error"),
        (allocated_to_a_move("running", updated_at=RECENT), ["Q protected"], "is running"),
        (allocated_to_a_move("completed", updated_at=RECENT), ["Q protected"], "was written within the grace time"),
        (
            allocated_to_a_move("completed", deleted=9, updated_at=RECENT),
            ["Q protected"],
            "was written within the grace",
        ),
        (beside_its_own, ["S stale"], "all of which are allocated to it"),
        (while_its_migration_holds_it, ["Q protected"], "a row of the device still names the instance"),
    ],
)
def test_only_allocations_that_nobody_needs_are_stale(
    tmp_path: Path, build: Build, expected: list[str], because: str
) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    held = build(cell, cell.host("gpu1", seen=3))
    for name in ("gpu2", "gpu3"):
        cell.host(name, seen=3)
    gpu = Provider(uuid="gpu", name="gpu1_GPU", root="node-gpu1", address=GPU, held=held)
    own = Provider(uuid="own", name="gpu1_OWN", root="node-gpu1", address="0000:82:00.0", held={"vm": 1})
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    devices = [gpu, own] if build is beside_its_own else [gpu]
    cloud = FullyAllocated()
    cloud.reserved = 0 if build is while_its_migration_holds_it else 2

    verdicts = plan.leftovers_of(sources, sources.cells[0], Selection(), cloud, devices)  # type: ignore[arg-type]

    assert [f"{verdict.klass} {verdict.status}" for verdict in verdicts] == expected
    for verdict in verdicts:
        assert because in verdict.because
        assert (verdict.repair is not None) is (verdict.status == "stale")
        assert verdict.advice == ""
        move = next((text for text in verdict.evidence if "is allocated to migration" in text), "")
        assert ("move" in held) is bool(move)
        own_devices = [text for text in verdict.evidence if text.endswith("is allocated to the instance")]
        assert bool(own_devices) is (verdict.klass == "S")


class FullyAllocated:
    """A stand-in for Placement: of each device, all is reserved.

    :ivar reserved: how much of it, of two.
    """

    reserved = 2

    placement = property(lambda self: self)

    def request(self, path: str, _method: str, **_more: object) -> SimpleNamespace:
        assert path.endswith("/inventories")
        inventories = {"CUSTOM_PCI": {"total": 2, "reserved": self.reserved}}
        document = {"inventories": inventories, "resource_provider_generation": 1}
        return SimpleNamespace(status_code=200, json=lambda: document)


@pytest.mark.parametrize("unread", [False, True])
def test_a_compute_node_that_is_deleted_or_unreadable_is_left_to_other_classes(
    monkeypatch: pytest.MonkeyPatch, unread: bool
) -> None:
    monkeypatch.setattr(drift, "by_uuids", lambda _connection, _uuids: {})
    seen = neighbourhood.view({**CASE, "node": {} if unread else {"deleted": 7200}})
    seen = dataclasses.replace(seen, unread="its host is damaged" if unread else "")
    reader = SimpleNamespace(connection=None, views=lambda hosts, uuids: [seen])
    device = Provider(uuid="gpu", name="gpu1_GPU", root="node", address="0000:81:00.0", held={"stranger": 1})
    known = Known(devices=[device], cloud=None)  # type: ignore[arg-type]
    assert list(drift.judge(reader, neighbourhood.clock(CASE), known)) == []  # type: ignore[arg-type]

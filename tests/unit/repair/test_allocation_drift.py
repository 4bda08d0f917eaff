"""Allocations of devices to consumers that no cell knows, and below compute nodes without rows: told, not repaired."""

from __future__ import annotations

from email.utils import format_datetime
from pathlib import Path

import pytest

from gpustack.cloud.placement import Provider
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from support import neighbourhood
from support.allocation import CASE, judged, verdicts
from support.cellfile import CellFile, nova_conf


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
        assert "unset --provider gpu stranger" in verdict.advice


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

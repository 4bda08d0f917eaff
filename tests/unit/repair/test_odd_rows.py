"""What no Nova writes and operators find all the same: the verdict on it is safe, and nothing breaks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpustack.hosts.facts.vgpu_model import Domain
from gpustack.novadb.hardware import Hardware, Present, hardware
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack.repair.show import explanation
from support.cellfile import CellFile, ago, nova_conf
from support.mediated_hosts import card, mediated_host

GPU = "0000:81:00.0"
OWNED = {"instance_uuid": "vm", "request_id": "r1"}


def here(cell: CellFile, **values: object) -> int:
    """An instance on gpu1, and its row."""
    cell.instance("vm", "gpu1")
    return cell.device(cell.host("gpu1"), GPU, "allocated", **OWNED, **values)


def requests(cell: CellFile, text: str | None) -> None:
    here(cell)
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instance_extra SET pci_requests = ?", (text,))


def moved(cell: CellFile, **values: object) -> None:
    cell.instance("vm", "gpu2", **values)
    cell.device(cell.host("gpu1"), GPU, "allocated", **OWNED)


def renamed_in_capitals(cell: CellFile) -> None:
    cell.instance("vm", "GPU1")
    cell.device(cell.host("gpu1"), GPU, "allocated", **OWNED)


def extra_info_broken(cell: CellFile) -> None:
    here(cell, extra_info="{not json")


def no_times(cell: CellFile) -> None:
    cell.instance("vm", "gpu2")
    cell.device(cell.host("gpu1"), GPU, "allocated", updated_at=None, created_at=None, **OWNED)


def written_in_the_future(cell: CellFile) -> None:
    cell.instance("vm", "gpu2")
    cell.device(cell.host("gpu1"), GPU, "allocated", updated_at=ago(-9000), **OWNED)


def node_row_is_gone(cell: CellFile) -> None:
    cell.instance("vm", "gpu2")
    cell.device(4711, GPU, "allocated", **OWNED)


def deleted_is_null(cell: CellFile) -> None:
    here(cell)
    cell.device(cell.host("gpu2"), GPU, "available", deleted=None)


def deleted_rows_share_the_address(cell: CellFile) -> None:
    node = cell.host("gpu1")
    cell.instance("vm", "gpu1")
    cell.device(node, GPU, "allocated", **OWNED)
    for number in (71, 72):
        cell.device(node, GPU, "allocated", deleted=number, instance_uuid=f"gone-{number}")


def functions_that_are_blocked_rightly(cell: CellFile) -> None:
    node = cell.host("gpu1")
    cell.device(node, GPU, "unavailable", dev_type="type-PF")
    virtual = {"dev_type": "type-VF", "parent_addr": GPU}
    cell.device(node, "0000:81:00.1", "allocated", **OWNED, **virtual)
    cell.device(node, "0000:81:00.2", "available", **virtual)
    cell.instance("vm", "gpu1")


def a_row_in_a_status_of_another_world(cell: CellFile) -> None:
    cell.device(cell.host("gpu1"), GPU, "reserved", instance_uuid=None)


def rows_deleted_under_a_guest(cell: CellFile) -> None:
    """DELETE FROM pci_devices, as the advice of the net has it; a guest on a host without GPUs beside it."""
    cell.host("gpu1")
    cell.instance("vm", "gpu1")
    cell.host("cpu1")
    cell.instance("plain", "cpu1", wants=())


def rows_soft_deleted_under_a_guest(cell: CellFile) -> None:
    rows_deleted_under_a_guest(cell)
    node = cell.host("gpu2")
    cell.instance("vm2", "gpu2")
    cell.device(node, GPU, "removed", deleted=77)


def one_host_written_in_two_ways(cell: CellFile) -> None:
    """To MySQL the service and the compute node are of one host; it runs, and has the row in its memory."""
    moved(cell)
    cell.host("other")
    with cell.engine.begin() as connection:
        reported = "last_seen_up = datetime('now'), updated_at = datetime('now')"
        connection.exec_driver_sql(f"UPDATE services SET host = 'GPU1', {reported}")


def no_extra(cell: CellFile) -> None:
    here(cell)
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM instance_extra")


def requests_twice(cell: CellFile, requests: str, **values: object) -> None:
    here(cell)
    cell.insert("instance_extra", instance_uuid="vm", pci_requests=requests, **values)


def without_conductor(cell: CellFile, *ages: float) -> None:
    """A leak in a cell whose only services are those of computes, which were seen so long ago."""
    moved(cell)
    for number, seconds in enumerate(ages, start=3):
        cell.host(f"gpu{number}", seen=seconds)
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM services WHERE binary = 'nova-conductor'")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (here, []),
        (extra_info_broken, []),
        (lambda cell: requests(cell, "{broken"), ["F undecided"]),
        (lambda cell: requests(cell, '[{"count": null}]'), ["F undecided"]),
        (lambda cell: requests(cell, "[7]"), ["F undecided"]),
        (lambda cell: requests(cell, None), ["F report"]),
        (lambda cell: moved(cell, vm_state=None), ["A stale"]),
        (lambda cell: moved(cell, deleted=None), ["A stale"]),
        (lambda cell: moved(cell, hidden=True), ["A protected"]),
        (lambda cell: moved(cell, task_state=""), ["A protected"]),
        (renamed_in_capitals, ["N report"]),
        (no_times, ["A stale"]),
        (written_in_the_future, ["A undecided"]),
        (node_row_is_gone, ["C stale"]),
        (deleted_is_null, []),
        (deleted_rows_share_the_address, []),
        (functions_that_are_blocked_rightly, []),
        (a_row_in_a_status_of_another_world, ["U report"]),
        (no_extra, ["F undecided"]),
        (lambda cell: requests_twice(cell, "[]"), ["F undecided"]),
        (lambda cell: requests_twice(cell, "[]", deleted=99), []),
        (one_host_written_in_two_ways, ["R report", "P stale"]),
        (lambda cell: (moved(cell), cell.conductor(5)), ["A stale"]),
        (lambda cell: (moved(cell), cell.conductor(4000)), ["A undecided"]),
        (lambda cell: (moved(cell), cell.conductor(-4000)), ["A undecided"]),
        (lambda cell: (moved(cell), cell.conductor(4000), cell.host("gpu3", seen=5)), ["A stale"]),
        (lambda cell: without_conductor(cell, 4000), ["A undecided"]),
        (lambda cell: without_conductor(cell, 4000, 5), ["A stale"]),
        (rows_deleted_under_a_guest, ["L report"]),
        (rows_soft_deleted_under_a_guest, ["L report", "L report"]),
    ],
)
def test_the_verdict_is_safe(build: object, expected: list[str], tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    build(cell)  # type: ignore[operator]
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    cleanup_plan = plan.make(Sources.from_nova_conf([conf]), Selection(stuck_after=timedelta(hours=2))).verdicts
    assert [f"{verdict.klass} {verdict.status}" for verdict in cleanup_plan] == expected, [
        verdict.because for verdict in cleanup_plan
    ]


def test_an_instance_whose_row_does_not_name_it_is_found_where_it_is(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("gpu1"), GPU)
    cell.instance("vm", "gpu1")
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    for selection in (Selection(instance="vm"), Selection(hosts=frozenset({"gpu1"}))):
        assert [(verdict.klass, verdict.owner) for verdict in plan.make(sources, selection).verdicts] == [("L", "vm")]
    assert plan.make(sources, Selection(instance="another")).verdicts == ()


@pytest.mark.parametrize("name", ["gpu1", "GPU1.example.org"])
def test_a_host_that_offers_devices_and_has_no_row_yet(name: str, tmp_path: Path) -> None:
    """device_spec was written, and nova-compute not restarted."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for host in ("gpu1", "gpu2"):
        cell.host(host)
    known = {
        name: Hardware(
            present={GPU: Present(vendor_id="10de", product_id="11b4", dev_type="type-PCI")}, offered=frozenset({GPU})
        )
    }
    sources = replace(Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})]), hardware=known)
    cleanup_plan = plan.make(sources, Selection()).verdicts
    assert [(verdict.klass, verdict.status.value, verdict.host) for verdict in cleanup_plan] == [
        ("O", "report", "gpu1")
    ]
    assert plan.make(sources, Selection(hosts=frozenset({"gpu2"}))).verdicts == ()


@pytest.mark.parametrize("known", [True, False])
def test_mediated_devices_are_reported_and_never_removed(known: bool, tmp_path: Path) -> None:
    """Those that nobody has, and those that an instance has and the host lacks: neither has rows."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.host("gpu1")
    used = {"nvidia-711": None, "nvidia-710": None, "nvidia-474": "instance x"}
    host = mediated_host(card("0000:41:00.0", used=used), name="gpu1")
    unused, stopped, _ = (device.uuid for device in host.pci[0].mediated_devices)
    gone = "aa618089-8b16-4d01-a136-000000000099"
    domains = (Domain(uuid="vm", devices=(stopped, gone)), Domain(uuid="other", devices=(stopped, "0000:99:00.4")))
    host = host.model_copy(update={"domains": domains if known else None})
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    made = plan.make(replace(sources, hardware=hardware([host])), Selection())
    assert made.repairs == ()
    assert {verdict.klass for verdict in made.verdicts} == ({"O"} if known else set())
    texts = {str(verdict.owner): explanation(verdict) for verdict in made.verdicts}
    assert [owner for owner, uuid in (("vm", gone), ("None", unused)) if uuid in texts.get(owner, "")] == (
        ["vm", "None"] if known else []
    )
    assert "other" not in texts, "a function has rows"


def odd(cell: CellFile, statement: str) -> None:
    """A leak on gpu1 whose cell somebody wrote to."""
    moved(cell)
    cell.device(cell.host("gpu3"), GPU, "allocated", instance_uuid="nobody")
    cell.host("cpu1", seen=5)
    with cell.engine.begin() as connection:
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE pci_devices SET updated_at = '0000-00-00 00:00:00' WHERE instance_uuid = 'vm'", ["A undecided"]),
        ("UPDATE pci_devices SET updated_at = 'yesterday' WHERE instance_uuid = 'vm'", ["A undecided"]),
        ("UPDATE instances SET updated_at = '0000-00-00 00:00:00'", ["A undecided"]),
        ("UPDATE instances SET deleted_at = '2026-02-31 00:00:00'", ["A undecided"]),
        ("UPDATE compute_nodes SET updated_at = 'soon' WHERE host = 'gpu1'", ["A undecided"]),
        ("UPDATE services SET last_seen_up = '0000-00-00 00:00:00' WHERE host = 'gpu1'", ["A undecided"]),
        ("UPDATE instance_extra SET pci_requests = '[{\"count\": 1e999}]'", ["A stale"]),
        (f"UPDATE instance_extra SET pci_requests = '{'[' * 100_000}'", ["A stale"]),
        ("UPDATE instance_extra SET pci_requests = '[{\"count\": -3}]'", ["A stale"]),
        ("UPDATE pci_devices SET instance_uuid = 'VM' WHERE instance_uuid = 'vm'", ["U report"]),
        ("UPDATE instances SET uuid = 'VM'", ["A stale"]),
        ("UPDATE pci_devices SET status = x'ff' WHERE instance_uuid = 'vm'", ["U report"]),
        ("UPDATE instances SET host = x'ff'", ["U undecided"]),
    ],
)
def test_one_bad_value_leaves_the_other_rows_judged(statement: str, expected: list[str], tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    odd(cell, statement)
    cleanup_plan = plan.make(Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})]), Selection())
    by_host = {
        host: [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts if v.host == host] for host in ("gpu1", "gpu3")
    }
    assert by_host == {"gpu1": expected, "gpu3": ["E stale"]}, [v.because for v in cleanup_plan.verdicts]


def test_a_cell_with_a_bad_value_that_is_read_once_leaves_the_other_cells_judged(tmp_path: Path) -> None:
    first, second = (CellFile(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("cell1", "cell2"))
    odd(first, "UPDATE services SET host = x'ff' WHERE host = 'gpu1'")
    moved(second)
    conf = nova_conf(tmp_path, {"cell1": first.url, "cell2": second.url})
    cleanup_plan = plan.make(Sources.from_nova_conf([conf]), Selection())
    assert [v.klass for v in cleanup_plan.verdicts if v.cell == "cell2"] == ["A"]
    assert [cell for cell, _reason in cleanup_plan.unread] == ["cell1"]


def test_a_uuid_in_capitals_belongs_to_the_instance_that_is_here(tmp_path: Path) -> None:
    """Freeing the row would give the device of a guest that runs to a second one."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    here(cell)
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE pci_devices SET instance_uuid = 'VM'")
    cleanup_plan = plan.make(Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})]), Selection())
    assert [(v.klass, v.status.value, v.owner) for v in cleanup_plan.verdicts] == [("U", "report", "vm")]

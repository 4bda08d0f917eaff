"""Class T: libvirt's domains against Nova's rows, in both directions. What the hosts answer is data here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.hypervisor import Usage, ask_all
from gpustack.repair.plan import Selection
from gpustack.repair.rules import t_domain_drift as drift
from gpustack.repair.verdict import Verdict
from support.cellfile import CellFile, ago, nova_conf

GPU, OTHER, SOUND = "0000:81:00.0", "0000:82:00.0", "0000:81:00.1"
OWNED = {"instance_uuid": "vm", "request_id": "r1"}
VM = frozenset({"vm"})


@dataclass
class Case:
    """A cell with gpu1, which is up, and what gpu1 answers."""

    cell: CellFile
    users: dict[str, frozenset[str]]
    gap: str = ""
    name: str = "gpu1"


def home(cell: CellFile, **values: object) -> int:
    node = cell.host("gpu1", seen=5)
    cell.host("gpu2", seen=5)
    cell.instance("vm", "gpu1", **values)
    return node


def agree(cell: CellFile) -> Case:
    cell.device(home(cell), GPU, "allocated", **OWNED)
    return Case(cell, {GPU: VM, SOUND: VM})


def lost_at_the_end_of_a_spawn(cell: CellFile) -> Case:
    node = home(cell)
    _write(cell, "UPDATE instances SET host = NULL, node = NULL, vm_state = 'error'")
    cell.device(node, GPU)
    return Case(cell, {GPU: VM})


def deleted_locally(cell: CellFile) -> Case:
    node = home(cell, deleted=77)
    cell.device(node, GPU)
    return Case(cell, {GPU: VM})


def freed_by_hand(cell: CellFile) -> Case:
    cell.device(home(cell), GPU)
    return Case(cell, {GPU: VM})


def freed_a_moment_ago(cell: CellFile) -> Case:
    cell.device(home(cell), GPU, updated_at=ago(10))
    return Case(cell, {GPU: VM})


def nobody_knows_by_whom(cell: CellFile) -> Case:
    cell.device(cell.host("gpu1", seen=5), GPU)
    return Case(cell, {GPU: frozenset({""})})


def of_another(cell: CellFile) -> Case:
    cell.device(home(cell), GPU, "allocated", **OWNED)
    cell.instance("thief", "gpu1", wants=())
    return Case(cell, {GPU: frozenset({"vm", "thief"})})


def runs_at_its_old_host(cell: CellFile) -> Case:
    node = home(cell)
    _write(cell, "UPDATE instances SET host = 'gpu2', node = 'gpu2'")
    cell.device(node, GPU, "allocated", **OWNED)
    return Case(cell, {GPU: VM})


def moves_live(cell: CellFile) -> Case:
    case = runs_at_its_old_host(cell)
    cell.move("vm", "gpu1", "gpu2", "running", updated_at=ago(60))
    return case


def moves_no_more(cell: CellFile) -> Case:
    """A power cut at gpu2 in the middle of a copy to gpu1, where a domain of it runs nevertheless."""
    node = home(cell)
    _write(cell, "UPDATE instances SET host = 'gpu2', node = 'gpu2'")
    cell.device(node, GPU, "allocated", **OWNED)
    cell.move("vm", "gpu2", "gpu1", "migrating")
    return Case(cell, {GPU: VM})


def freed_beside_a_dead_task(cell: CellFile) -> Case:
    case = freed_by_hand(cell)
    _write(cell, "UPDATE instances SET task_state = 'powering-on'")
    return case


def of_a_port(cell: CellFile) -> Case:
    """A virtual function that the domain has as an interface (macvtap)."""
    cell.device(home(cell), GPU, "allocated", **OWNED)
    _write(
        cell, """UPDATE instance_extra SET pci_requests = '[{"count": 1, "request_id": "r1", "alias_name": null}]'"""
    )
    return Case(cell, {})


def no_domain_has_it(cell: CellFile) -> Case:
    cell.device(home(cell), GPU, "allocated", **OWNED)
    return Case(cell, {})


def stopped(cell: CellFile) -> Case:
    cell.device(home(cell, vm_state="stopped"), GPU, "allocated", **OWNED)
    return Case(cell, {})


def no_answer(cell: CellFile) -> Case:
    return Case(cell, no_domain_has_it(cell).users, gap="no SSH connection")


def another_machine(cell: CellFile) -> Case:
    """DNS, or a jump host, led to an equal host: what runs there proves nothing, and is no fault of gpu1."""
    cell.device(home(cell), GPU)
    return Case(cell, {GPU: VM}, name="gpu9")


def half_an_answer(cell: CellFile) -> Case:
    return Case(cell, freed_by_hand(cell).users, gap="the host could not read /proc/1/fd")


def a_row_that_somebody_deleted(cell: CellFile) -> Case:
    cell.device(home(cell), OTHER)
    return Case(cell, {GPU: VM})


def a_device_that_is_not_novas(cell: CellFile) -> Case:
    cell.device(cell.host("gpu1", seen=5), OTHER)
    return Case(cell, {GPU: frozenset({"not-of-nova"})})


def blocked(cell: CellFile) -> Case:
    cell.device(cell.host("gpu1", seen=5), GPU, "unavailable")
    return Case(cell, {GPU: frozenset({"not-of-nova"})})


def of_a_deleted_instance(cell: CellFile) -> Case:
    cell.device(home(cell, deleted=77), GPU, "allocated", **OWNED)
    return Case(cell, {GPU: VM})


def placed_nowhere(cell: CellFile) -> Case:
    case = agree(cell)
    _write(cell, "UPDATE instances SET host = NULL, node = NULL")
    return case


def a_card_without_a_row(cell: CellFile) -> Case:
    cell.device(home(cell), OTHER)
    return Case(cell, {GPU: VM, SOUND: VM})


def of_a_port_and_a_flavor(cell: CellFile) -> Case:
    """The device of the flavor is in no domain; that of the port may be in it as an interface."""
    node = home(cell)
    for address, request in ((GPU, "r1"), (OTHER, "r2")):
        cell.device(node, address, "allocated", **{**OWNED, "request_id": request})
    requests = [{"count": 1, "request_id": "r1", "alias_name": "gpu"}, {"count": 1, "request_id": "r2"}]
    _write(cell, f"UPDATE instance_extra SET pci_requests = '{json.dumps(requests)}'")
    return Case(cell, {})


def of_vdpa(cell: CellFile) -> Case:
    cell.device(home(cell), GPU, "allocated", dev_type="vdpa", **OWNED)
    return Case(cell, {})


def of_unreadable_requests(cell: CellFile) -> Case:
    case = no_domain_has_it(cell)
    _write(cell, "UPDATE instance_extra SET pci_requests = 'damaged'")
    return case


def _write(cell: CellFile, statement: str) -> None:
    with cell.engine.begin() as connection:
        connection.execute(sa.text(statement))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (agree, []),
        (lost_at_the_end_of_a_spawn, ["report"]),
        (deleted_locally, ["report"]),
        (freed_by_hand, ["report"]),
        (freed_a_moment_ago, ["protected"]),
        (nobody_knows_by_whom, ["report"]),
        (of_another, ["report"]),
        (runs_at_its_old_host, ["report"]),
        (moves_live, ["protected"]),
        (moves_no_more, ["report"]),
        (freed_beside_a_dead_task, ["report"]),
        (of_a_port, []),
        (no_domain_has_it, ["report"]),
        (stopped, []),
        (no_answer, ["undecided"]),
        (another_machine, ["undecided"]),
        (half_an_answer, ["undecided", "report"]),
        (a_row_that_somebody_deleted, ["report"]),
        (a_device_that_is_not_novas, []),
        (blocked, ["report"]),
        (of_a_deleted_instance, ["report"]),
        (placed_nowhere, ["report"]),
        (a_card_without_a_row, ["report"]),  # once for all functions of the card
        (of_a_port_and_a_flavor, ["report"]),
        (of_vdpa, []),
        (of_unreadable_requests, []),
    ],
)
def test_domains_and_rows_are_compared_both_ways(
    build: Callable[[CellFile], Case], expected: list[str], tmp_path: Path
) -> None:
    verdicts = judged(build, tmp_path)
    assert [v.status.value for v in verdicts] == expected, [v.because for v in verdicts]
    assert all(v.repair is None for v in verdicts)


def judged(build: Callable[[CellFile], Case], tmp_path: Path) -> list[Verdict]:
    """The verdicts of class T."""
    case = build(CellFile(f"sqlite:///{tmp_path}/cell.sqlite"))
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": case.cell.url})])
    answers = {"gpu1": Usage(users=case.users, gap=case.gap, names=frozenset({case.name}))}
    return [v for v in plan.make(sources, Selection(), answers=answers).verdicts if v.klass == drift.CLASS]


DISABLE = "at once: openstack compute service set --disable gpu1 nova-compute; do not restart nova-compute; then"
REBOOT = "start or stop the instance, or hard-reboot it, until both agree"
REACH = "make it reachable over SSH for root, or with --sudo: gpustack cleanup plan --ask-hosts --host gpu1"
USED = (f"gpu1: {GPU} is in use by vm", f"{GPU} (10de:11b4, type-PCI), is ")


@pytest.mark.parametrize(
    ("build", "because", "evidence", "advice"),
    [
        (
            freed_by_hand,
            f"the domain of vm uses {GPU}, and Nova offers it: one GPU may get two instances",
            USED,
            DISABLE,
        ),
        (
            blocked,
            f"uses {GPU}, and its row is unavailable: one GPU may get two",
            (f"{GPU} is in use by not",),
            DISABLE,
        ),
        (nobody_knows_by_whom, "an unknown process uses", (f"gpu1: {GPU} is in use by an unknown process",), DISABLE),
        (of_another, f"thief uses {GPU}, and by its row it belongs to vm", (f"{GPU} is in use by thief",), DISABLE),
        (runs_at_its_old_host, f"the domain of vm runs here with {GPU}, and Nova places it on gpu2", USED, DISABLE),
        (of_a_deleted_instance, "Nova places it on nowhere: it does not exist", USED, DISABLE),
        (placed_nowhere, "Nova places it on no host", USED, DISABLE),
        (
            a_row_that_somebody_deleted,
            f"the domain of vm uses {GPU}, which has no row: nova-compute may offer it when it starts",
            (USED[0], f"{GPU} has no row", "instance vm is active"),
            DISABLE,
        ),
        (
            no_domain_has_it,
            f"instance vm is active here, and no domain uses {GPU}, which its row gives to it",
            (f"gpu1: no domain uses {GPU}", USED[1]),
            REBOOT,
        ),
        (of_a_port_and_a_flavor, f"no domain uses {GPU}", (f"gpu1: no domain uses {GPU}",), REBOOT),
        (
            another_machine,
            "the machine that answered as gpu1 calls itself gpu9",
            ("nova-compute on gpu1 is up",),
            REACH,
        ),
        (no_answer, "gpu1 could not be asked: no SSH connection", ("nova-compute on gpu1 is up",), REACH),
        (freed_a_moment_ago, "one GPU may get two instances; but row", USED, ""),
        (moves_live, "Nova places it on gpu2; but migration", USED, ""),
    ],
)
def test_a_difference_is_described_with_the_first_remedy(
    build: Callable[[CellFile], Case], because: str, evidence: tuple[str, ...], advice: str, tmp_path: Path
) -> None:
    (verdict,) = judged(build, tmp_path)
    assert because in verdict.because
    for text in evidence:
        assert any(text in line for line in verdict.evidence), verdict.evidence
    without_row = build is a_row_that_somebody_deleted or advice == REACH
    assert [row.address for row in verdict.rows] == ([] if without_row else [GPU])
    assert verdict.advice.startswith(advice)
    assert bool(verdict.advice) is bool(advice)


def test_a_domain_whose_instance_may_be_in_another_cell_is_undecided(tmp_path: Path) -> None:
    cell, other = (CellFile(f"sqlite:///{tmp_path}/{name}.sqlite") for name in ("cell", "other"))
    cell.device(home(cell), OTHER)
    _write(cell, "UPDATE instances SET host = 'gpu2', node = 'gpu2'")
    conf = nova_conf(tmp_path, {"cell1": cell.url, "cell2": other.url})
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("INSERT INTO instance_mappings VALUES (1, 'vm', 2)")
    answers = {"gpu1": Usage(users={GPU: VM}, names=frozenset({"gpu1"}))}
    made = plan.make(Sources.from_nova_conf([conf]), Selection(), answers=answers)
    (verdict,) = (verdict for verdict in made.verdicts if verdict.klass == drift.CLASS)
    assert verdict.status.value == "undecided", verdict.because


def test_hosts_are_asked_beside_one_another_and_reported(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for number in range(5):
        cell.device(cell.host(f"gpu{number}", deleted=number == 4), GPU)
    cell.host("cpu1")
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    hosts = plan.hosts_to_ask(sources, Selection())
    assert hosts == {"gpu0", "gpu1", "gpu2", "gpu3"}
    reported: list[str] = []
    assert ask_all(hosts, lambda host: Usage(gap=host), 3, reported.append) == {h: Usage(gap=h) for h in hosts}
    assert sorted(reported) == sorted(hosts)


def test_a_migration_of_an_instance_without_devices_keeps_nova_compute_running(tmp_path: Path) -> None:
    """It is on neither compute node's rows, and a restart of either nova-compute would break it off."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for name in ("gpu1", "GPU2", "gpu3"):
        cell.device(cell.host(name, seen=5), GPU, "allocated")
    cell.instance("vm", "cpu1", wants=())
    cell.move("vm", "gpu1", "gpu2", "running")
    sources = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    statuses = {v.host: v.status.value for v in plan.make(sources, Selection()).verdicts if v.klass == "J"}
    assert statuses == {"gpu1": "report", "GPU2": "report", "gpu3": "stale"}

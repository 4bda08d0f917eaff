"""The clean-up plan: every verdict on the chosen cells, as data that can be shown, saved and carried out later."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa

from gpustack.cleanup import cells, databases, hardware, nodes, placement, read, rules, schema, tables
from gpustack.cleanup import permission as asking
from gpustack.cleanup.cells import Cell
from gpustack.cleanup.checked import Checked
from gpustack.cleanup.classes import CLASSES
from gpustack.cleanup.clock import Clock
from gpustack.cleanup.databases import Database
from gpustack.cleanup.owners import OtherCells
from gpustack.cleanup.rules import o_hardware_drift, q_allocation_drift, t_domain_drift
from gpustack.cleanup.values import DAMAGE
from gpustack.cleanup.verdict import PlannedVerdict, Status, Verdict
from gpustack.errors import CloudError, DatabaseError, UsageError
from gpustack.files import write_atomic

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.cleanup.hypervisor import Usage
    from gpustack.cleanup.placement import Provider
    from gpustack.cleanup.rules._rule import CellRule

Witness = TypeVar("Witness")

FORMAT = "gpustack_cleanup_plan"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The databases that a plan is made from.

    :ivar cells: the cells to judge.
    :ivar api: the API database, when it is known.
    :ivar all_cells: every cell that is known: owners may live in those that are not judged.
    """

    cells: tuple[Cell, ...]
    api: Database | None = None
    all_cells: tuple[Cell, ...] = ()
    service_down_time: int | None = None
    """What nova.conf says of it, in seconds."""
    hardware: Mapping[str, hardware.Hardware] = field(default_factory=dict)
    """What is known of the hosts themselves, by name."""

    @classmethod
    def from_nova_conf(cls, paths: list[Path]) -> Sources:
        """The API database of a nova configuration and all the cells that it knows."""
        api, main = cells.from_nova_conf(paths)
        known = cells.cells(api, main)
        return cls(api=api, cells=known, all_cells=known, service_down_time=cells.service_down_time(paths))

    @classmethod
    def from_url(cls, url: str) -> Sources:
        """One cell alone."""
        cell = Cell(uuid="", name="cell", disabled=False, database=databases.database("cell database", url))
        return cls(cells=(cell,))

    @property
    def with_hosts(self) -> tuple[Cell, ...]:
        """The cells to judge, without cell0: it holds instances that were never placed, and no compute host."""
        return tuple(cell for cell in self.cells if cell.uuid != cells.CELL0)

    def named(self, names: Iterable[str]) -> Sources:
        """Only the cells with these names or uuids; all when there is none.

        :raises UsageError: for a name that no cell has.
        """
        wanted = set(names)
        chosen = tuple(cell for cell in self.cells if not wanted or cell.name in wanted or cell.uuid in wanted)
        missing = wanted - {name for cell in chosen for name in (cell.name, cell.uuid)}
        if missing:
            raise UsageError(
                f"there is no cell {sorted(missing)[0]!r}",
                remedy=f"known: {', '.join(cell.name for cell in self.cells)}",
            )
        return replace(self, cells=chosen)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which rows are judged, and what counts as recent."""

    hosts: frozenset[str] | None = None
    instance: str | None = None
    classes: frozenset[str] = frozenset()
    grace: timedelta = timedelta(seconds=300)
    service_down_time: timedelta = timedelta(seconds=60)
    stuck_after: timedelta = timedelta(hours=1)
    stopped: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """Hosts whose answer the operator replaces: fenced, scrapped or reinstalled."""
    unblock: frozenset[tuple[str, str]] = frozenset()
    """Devices, by host and address, that class H may make available again."""

    def clock(self, now: datetime, reports: Mapping[str, datetime]) -> Clock:
        """The clock of a cell.

        :param now: what the database says.
        :param reports: when its services of each kind last reported. Some do all the time, nova-conductor at least:
            where none has, a host that is silent need not be down.
        """
        others = max((reported_at for binary, reported_at in reports.items() if binary != "nova-compute"), default=None)
        current = {reported_at for reported_at in reports.values() if abs(now - reported_at) <= self.service_down_time}
        doubt = ""
        if others is not None and not current:
            last = max(reports.values())
            doubt = (
                f"no service of this cell has reported since {last}, and the database's clock is at {now:%F %T}: its "
                "conductors are down, or this is a copy that is not kept up to date, or the clocks differ"
            )
        return Clock(
            now=now,
            grace=self.grace,
            service_down_time=self.service_down_time,
            stuck_after=self.stuck_after,
            stopped=self.stopped,
            unblock=self.unblock,
            heard=others if others in current else None,
            doubt=doubt,
        )

    def wants(self, verdict: Verdict) -> bool:
        """Whether a verdict is of the chosen classes and instance."""
        return (not self.classes or verdict.klass in self.classes) and self.instance in (None, verdict.owner)

    def of_planned(self, planned: Iterable[PlannedVerdict], sources: Sources) -> list[PlannedVerdict]:
        """Those verdicts of a saved plan, as plain data, that are of the chosen cells, hosts, classes and instance.

        Verdicts on a cell that is not known at all stay: whoever carries them out tells so.
        """
        others = {cell.name for cell in sources.all_cells} - {cell.name for cell in sources.cells}
        return [
            verdict
            for verdict in planned
            if verdict["cell"] not in others
            and (self.hosts is None or verdict["host"] in self.hosts)
            and (not self.classes or verdict["class"] in self.classes)
            and self.instance in (None, verdict["instance"])
        ]


@dataclass(frozen=True, kw_only=True)
class CleanupPlan:
    """What was found.

    :ivar checked: what was read.
    :ivar verdicts: cell after cell, compute node after compute node; Placement's leftovers last.
    :ivar unread: cells that could not be read, with the reason.
    :ivar unasked: why Placement could not be asked, where it should have been: class Q is undecided then.
    """

    verdicts: tuple[Verdict, ...]
    checked: Checked = field(default_factory=Checked)
    unread: tuple[tuple[str, str], ...] = ()
    unasked: CloudError | None = None

    @property
    def repairs(self) -> tuple[Verdict, ...]:
        """The verdicts that ``apply`` acts on."""
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.STALE)

    def counts(self) -> Counter[tuple[str, str, str]]:
        """How many verdicts there are by cell, class and status; 0 for each that was checked and has none."""
        found = Counter(dict.fromkeys(self.checked.keys(), 0))
        found.update((v.cell, v.klass, v.status.value) for v in self.verdicts)
        return found

    def to_dict(self) -> dict[str, object]:
        """The plan as plain data."""
        return {
            FORMAT: VERSION,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "unread": [{"cell": cell, "reason": reason} for cell, reason in self.unread],
            "unasked": self.unasked.what if self.unasked else None,
        }

    def save(self, path: Path) -> None:
        """Write the plan, readable by its owner only: it names instances and hosts."""
        write_atomic(path, json.dumps(self.to_dict(), indent=1, default=str) + "\n", mode=0o600)


@contextmanager
def reading(sources: Sources, cell: Cell, selection: Selection) -> Iterator[tuple[read.CellReader, Clock]]:
    """One read-only snapshot of a cell, and the other cells at hand."""
    others = OtherCells(api=sources.api, cells=sources.all_cells)
    try:
        with databases.snapshot(cell.database) as connection:
            reader = read.CellReader(
                connection=connection,
                schema=schema.read(connection, "cell", cell.database.where),
                cell=cell.name,
                cell_uuid=cell.uuid,
                others=others,
            )
            yield reader, selection.clock(read.now(connection), read.reports(connection))
    except DAMAGE as error:
        raise DatabaseError(
            f"a value can't be read: {type(error).__name__}: {error}",
            where=cell.database.where,
            remedy="look at services and migrations for values that Nova does not write; other cells are judged",
        ) from error
    finally:
        others.close()


def verdicts_of(
    sources: Sources, cell: Cell, selection: Selection, checked: Checked | None = None
) -> Iterator[Verdict]:
    """Judge one cell through one read-only snapshot.

    :param checked: counts what was read.
    :raises DatabaseError: when the cell can't be read, or has a schema that is not known.
    """
    with reading(sources, cell, selection) as (reader, clock):
        looked_at = sources.hardware if selection.instance is None else ()
        for view in reader.views(selection.hosts, selection.instance, names=looked_at):
            known = hardware.of_host(sources.hardware, view.node.host, view.node.hypervisor_hostname)
            if checked is not None:
                checked.add(view)
            with_hardware = view if known is None else replace(view, hardware=known)
            yield from filter(selection.wants, rules.judge(with_hardware, clock))


def leftovers_of(
    sources: Sources, cell: Cell, selection: Selection, cloud: Connection, devices: Sequence[Provider] | None = None
) -> list[Verdict]:
    """Judge Placement's allocations of one cell's devices (class Q).

    Placement is asked before the cell: what is seen of the rows is then the newer of the two.

    :param devices: what Placement said already.
    :raises CloudError: when Placement can't be asked.
    :raises DatabaseError: when the cell can't be read.
    """
    if devices is None:
        roots = None
        if selection.hosts is not None:
            with databases.snapshot(cell.database) as connection:
                roots = nodes.uuids_of(connection, selection.hosts)
        devices = list(placement.providers(cloud, roots))
    if not devices:
        return []
    known = placement.Known(devices=devices, cloud=cloud)
    return witnessed(sources, cell, selection, q_allocation_drift, known)


def witnessed(
    sources: Sources, cell: Cell, selection: Selection, rule: CellRule[Witness], witness: Witness
) -> list[Verdict]:
    """Compare one cell's rows with a witness from outside of the databases.

    :raises DatabaseError: when the cell can't be read.
    """
    with reading(sources, cell, selection) as (reader, clock):
        return list(filter(selection.wants, rule.judge(reader, clock, witness, selection.hosts)))


def hosts_to_ask(sources: Sources, selection: Selection) -> set[str]:
    """The hosts with rows; a cell that can't be read has none.

    Plan after they were asked: rows that were written meanwhile are young, and protected.
    """
    names: set[str] = set()
    for cell in sources.with_hosts:
        with suppress(DatabaseError), databases.snapshot(cell.database) as connection:
            names |= nodes.hosts_with_rows(connection, selection.hosts)
    return names


def settled(plan: CleanupPlan, answers: Mapping[str, Usage]) -> CleanupPlan:
    """The plan after the hosts have answered: what they do not permit is *undecided*, or only reported."""
    return replace(plan, verdicts=tuple(asking.settle(verdict, answers) for verdict in plan.verdicts))


def unknown_hosts(sources: Sources, hosts: Iterable[str]) -> set[str]:
    """Those of these hosts that no cell has a compute node of, deleted ones too.

    :raises DatabaseError: when a cell can't be read.
    """
    missing = set(hosts)
    for cell in sources.with_hosts:
        if missing:
            with databases.snapshot(cell.database) as connection:
                host = tables.compute_nodes.c.host
                missing -= set(connection.scalars(sa.select(host).where(host.in_(sorted(missing)))))
    return missing


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for cycles of objects rarely: rows come and go by the thousand, and none is part of one."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def make(
    sources: Sources,
    selection: Selection,
    cloud: Connection | None = None,
    answers: Mapping[str, Usage] | None = None,
) -> CleanupPlan:
    """Judge every cell; one that can't be read is told of, and the others are judged.

    :param answers: what the hosts of :func:`hosts_to_ask` answered; None where none was asked.
    :param cloud: asks Placement as well (class Q). Where it can't be asked that is told too, and the rows are judged.
    :raises DatabaseError: when no cell at all could be read.
    """
    verdicts: list[Verdict] = []
    unread: list[tuple[str, str]] = []
    failure: DatabaseError | None = None
    leftovers: list[Verdict] = []
    unasked: CloudError | None = None
    devices: list[Provider] | None = None
    asks = cloud is not None and (not selection.classes or q_allocation_drift.CLASS in selection.classes)
    checked = Checked(classes=_classes(sources, selection, placement=asks, hosts=answers is not None))
    for cell in sources.with_hosts:
        try:
            with _rare_collections():
                verdicts += verdicts_of(sources, cell, selection, checked)
                if answers is not None:
                    verdicts += witnessed(sources, cell, selection, t_domain_drift, answers)
            if cloud is not None and asks and unasked is None:
                if devices is None and selection.hosts is None:  # one answer for all cells
                    devices = list(placement.providers(cloud))
                leftovers += leftovers_of(sources, cell, selection, cloud, devices)
        except DatabaseError as error:
            failure = error
            unread.append((cell.name, str(error)))
            continue
        except CloudError as error:
            unasked = error  # nor is it asked for the other cells: it may take long not to answer
        checked.cells.append(cell.name)
        if unasked is not None:
            leftovers.append(q_allocation_drift.unasked(cell.name, unasked.what))
    if failure is not None and len(unread) == len(sources.with_hosts):
        raise failure
    return CleanupPlan(verdicts=(*verdicts, *leftovers), checked=checked, unread=tuple(unread), unasked=unasked)


def _classes(sources: Sources, selection: Selection, *, placement: bool, hosts: bool) -> frozenset[str]:
    """The chosen classes, without those whose source of facts is not named."""
    optional = {
        o_hardware_drift.CLASS: bool(sources.hardware),
        q_allocation_drift.CLASS: placement,
        t_domain_drift.CLASS: hosts,
    }
    chosen = selection.classes or frozenset(CLASSES)
    return frozenset(klass for klass in chosen if optional.get(klass, True))

"""The clean-up plan: all verdicts on the chosen cells, as data to show, save, and apply later."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.base.files import write_atomic
from gpustack.base.text import counted
from gpustack.cloud import Connection, placement
from gpustack.cloud.placement import Provider
from gpustack.novadb import databases, hardware, nodes
from gpustack.novadb.counts import NodeCounts
from gpustack.novadb.other_cells import Identity, surveyed
from gpustack.novadb.read import reading
from gpustack.novadb.sources import Cell, Sources
from gpustack.novadb.view import CURRENT, Clock, Judgement
from gpustack.repair import permission, rules
from gpustack.repair.classes import CLASSES
from gpustack.repair.hypervisor import Usage
from gpustack.repair.rules import o_hardware_drift, q_allocation_drift, s_phantom_allocation, t_domain_drift
from gpustack.repair.rules._rule import CellRule, Rule
from gpustack.repair.verdict import PlannedVerdict, Status, Verdict

Witness = TypeVar("Witness")

FORMAT = "gpustack_cleanup_plan"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Selection(Judgement):
    """The operator's choice of rows, and what counts as recent."""

    hosts: frozenset[str] | None = None
    instance: str | None = None
    classes: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """Hosts whose answer the operator replaces (``--gone``): fenced, scrapped or reinstalled."""

    def clock(self, now: datetime, reports: Mapping[str, datetime]) -> Clock:
        """Return the clock of a cell.

        :param now: the database's current time.
        :param reports: the last report of any service, by binary. Services such as nova-conductor report continuously.
            If none of them has reported lately, a silent host is not necessarily down, also if the cell has no
            services but those of its computes.
        """
        others = max((reported_at for binary, reported_at in reports.items() if binary != "nova-compute"), default=None)
        limit = min(self.service_down_time, CURRENT)
        current = {reported_at for reported_at in reports.values() if abs(now - reported_at) <= limit}
        doubt = ""
        if not current:
            last = max(reports.values(), default="they were created")
            doubt = (
                f"no service of this cell has reported since {last}, and the database's clock is at {now:%F %T}: its "
                "conductors are down, or this is a copy that is not kept up to date, or the clocks differ"
            )
        limits = {limit.name: getattr(self, limit.name) for limit in fields(Judgement)}
        return Clock(now=now, heard=others if others in current else None, doubt=doubt, **limits)

    def wants(self, verdict: Verdict) -> bool:
        """Whether a verdict matches the chosen classes and instance."""
        return (not self.classes or verdict.klass in self.classes) and self.instance in (None, verdict.owner)

    def of_planned(self, planned: Iterable[PlannedVerdict], sources: Sources) -> list[PlannedVerdict]:
        """Return the verdicts of a saved plan that match the chosen cells, hosts, classes and instance.

        Verdicts on an unknown cell are kept: ``apply`` reports them as skipped.
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


@dataclass(kw_only=True)
class Checked:
    """The scope of a plan, so that a plan without verdicts differs from a plan that read nothing.

    :ivar classes: the letters of the classes that were checked.
    :ivar cells: the names of the cells that could be read.
    :ivar hosts: (cell, host) of each compute node that was read.
    :ivar devices: the number of live rows of ``pci_devices``.
    """

    classes: frozenset[str] = frozenset()
    cells: list[str] = field(default_factory=list)
    hosts: set[tuple[str, str | None]] = field(default_factory=set)
    devices: int = 0

    def add(self, cell: str, host: str | None, devices: int) -> None:
        self.hosts |= {(cell, host)} if host else set()
        self.devices += devices

    def keys(self) -> Iterator[tuple[str, str, str]]:
        """Yield every combination of cell, class and status for which a verdict is possible."""
        return itertools.product(self.cells, self.classes, [status.value for status in Status])

    def __str__(self) -> str:
        counts = {"cell": len(self.cells), "host": len(self.hosts), "device": self.devices}
        return ", ".join(counted(count, noun) for noun, count in counts.items()) + " checked"


@dataclass(frozen=True, kw_only=True)
class CleanupPlan:
    """A clean-up plan.

    :ivar verdicts: ordered by cell and compute node; allocations of Placement (classes Q and S) last.
    :ivar checked: the scope of the plan.
    :ivar unread: cells that could not be read, with the reason.
    :ivar unasked: why Placement could not be read although requested; classes Q and S are then undecided.
    :ivar databases: the uuids of the cells, by name: another cloud may have a cell of the same name.
    """

    verdicts: tuple[Verdict, ...]
    checked: Checked = field(default_factory=Checked)
    unread: tuple[tuple[str, str], ...] = ()
    unasked: CloudError | None = None
    databases: Mapping[str, str] = field(default_factory=dict)

    @property
    def repairs(self) -> tuple[Verdict, ...]:
        """The verdicts with a repair that ``apply`` carries out."""
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.STALE)

    def counts(self) -> Counter[tuple[str, str, str]]:
        """Return the number of verdicts by cell, class and status; 0 for combinations that were checked."""
        found = Counter(dict.fromkeys(self.checked.keys(), 0))
        found.update((v.cell, v.klass, v.status.value) for v in self.verdicts)
        return found

    def to_dict(self) -> dict[str, object]:
        return {
            FORMAT: VERSION,
            "verdicts": [v.to_dict() | {"database": self.databases.get(v.cell, "")} for v in self.verdicts],
            "unread": [{"cell": cell, "reason": reason} for cell, reason in self.unread],
            "unasked": self.unasked.what if self.unasked else None,
        }

    def save(self, path: Path) -> None:
        """Write the plan as a file that only its owner can read: it contains instances and hosts."""
        write_atomic(path, json.dumps(self.to_dict(), indent=1, default=str) + "\n", mode=0o600)


def verdicts_of(
    sources: Sources, cell: Cell, selection: Selection, checked: Checked | None = None
) -> Iterator[Verdict]:
    """Judge one cell through one read-only snapshot.

    :param checked: counts what is read.
    :raises DatabaseError: if the cell cannot be read, or has an unknown schema.
    """
    with reading(sources, cell, selection) as (reader, clock):
        hardware_of = hardware.finder(sources.hardware)
        looked_at = sources.hardware if selection.instance is None else ()

        def healthy(node: NodeCounts) -> bool:
            known = hardware_of(node.host, node.hypervisor_hostname)
            fit = known is None and rules.healthy(node)
            if fit and checked is not None:
                checked.add(cell.name, node.host, node.devices)
            return fit

        for view in reader.views(selection.hosts, selection.instance, names=looked_at, healthy=healthy):
            known = hardware_of(view.node.host, view.node.hypervisor_hostname)
            if checked is not None:
                checked.add(view.cell, view.node.host, sum(row.live for row in view.rows))
            with_hardware = view if known is None else replace(view, hardware=known)
            verdicts = (_identified(verdict, reader.identity) for verdict in rules.judge(with_hardware, clock))
            yield from filter(selection.wants, verdicts)


def _identified(verdict: Verdict, identity: Identity) -> Verdict:
    """Return the verdict; *undecided* if the database may be another cell's: it is read, and never written."""
    doubt = identity.of(verdict.host)
    if not doubt or (verdict.status not in (Status.STALE, Status.HEALS) and not verdict.then):
        return verdict
    if verdict.status is Status.REPORT:
        return replace(verdict, because=f"{verdict.because}; {doubt}", then="", questions=None)
    return verdict.undecided(doubt)


def leftovers_of(
    sources: Sources, cell: Cell, selection: Selection, cloud: Connection, devices: Sequence[Provider] | None = None
) -> list[Verdict]:
    """Judge Placement's allocations of one cell's devices (classes Q and S).

    Placement is read before the cell, so the rows are the newer data.

    :param devices: the devices of Placement if already read.
    :raises CloudError: if Placement cannot be read.
    :raises DatabaseError: if the cell cannot be read.
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
    """Compare one cell's rows with a source outside the databases: Placement, or the answers of hosts.

    :raises DatabaseError: if the cell cannot be read.
    """
    with reading(sources, cell, selection) as (reader, clock):
        verdicts = (
            _identified(verdict, reader.identity) for verdict in rule.judge(reader, clock, witness, selection.hosts)
        )
        return list(filter(selection.wants, verdicts))


def hosts_to_ask(sources: Sources, selection: Selection) -> set[str]:
    """Return the hosts with rows; cells that cannot be read are skipped.

    Make the plan after asking these hosts: rows that changed meanwhile are then protected by the grace time.
    """
    names: set[str] = set()
    for cell in sources.with_hosts:
        with suppress(DatabaseError), databases.snapshot(cell.database) as connection:
            names |= nodes.hosts_with_rows(connection, selection.hosts)
    return names


def settled(plan: CleanupPlan, answers: Mapping[str, Usage]) -> CleanupPlan:
    """Return the plan after the hosts answered.

    Verdicts without their permission become *undecided* or *report*, and tasks that no nova-compute continues *stuck*.
    """
    verdicts = (permission.restarted(permission.settle(verdict, answers), answers) for verdict in plan.verdicts)
    return replace(plan, verdicts=tuple(verdicts))


@databases.reusing_connections()
def make(
    sources: Sources, selection: Selection, cloud: Connection | None = None, answers: Mapping[str, Usage] | None = None
) -> CleanupPlan:
    """Judge every cell; cells that cannot be read are listed in the plan.

    :param cloud: the cloud whose Placement is read (classes Q and S); None to leave it out. If Placement cannot be
        read, the plan records that, and the rows are still judged.
    :param answers: the answers of :func:`hosts_to_ask`; None if no host was asked.
    :raises DatabaseError: if no cell could be read.
    """
    if (selection.hosts, selection.instance) == (None, None):
        sources = surveyed(sources)
    verdicts: list[Verdict] = []
    leftovers: list[Verdict] = []
    unread: list[tuple[str, str]] = []
    failure: DatabaseError | None = None
    asks = cloud is not None and any(_placed(selection))
    allocations = _Allocations(sources=sources, selection=selection, cloud=cloud if asks else None)
    checked = Checked(classes=_classes(sources, selection, placement=asks, hosts=answers is not None))
    for cell in sources.with_hosts:
        try:
            verdicts += verdicts_of(sources, cell, selection, checked)
            if answers is not None:
                verdicts += witnessed(sources, cell, selection, t_domain_drift, answers)
            leftovers += allocations.judge(cell)
        except DatabaseError as error:
            failure = error
            unread.append((cell.name, str(error)))
        else:
            checked.cells.append(cell.name)
    if failure is not None and len(unread) == len(sources.with_hosts):
        raise failure
    return CleanupPlan(
        verdicts=(*verdicts, *leftovers),
        checked=checked,
        unread=tuple(unread),
        unasked=allocations.unasked,
        databases={cell.name: cell.uuid for cell in sources.cells},
    )


@dataclass(kw_only=True)
class _Allocations:
    """Placement's allocations, cell by cell.

    :ivar cloud: None if Placement is left out.
    :ivar devices: one answer for all cells; None if not read, or if hosts are selected.
    :ivar unasked: the error of an earlier cell. Placement is not asked again: a timeout can take long.
    """

    sources: Sources
    selection: Selection
    cloud: Connection | None
    devices: list[Provider] | None = None
    unasked: CloudError | None = None

    def judge(self, cell: Cell) -> list[Verdict]:
        if self.cloud is None:
            return []
        if self.unasked is None:
            try:
                if self.devices is None and self.selection.hosts is None:
                    self.devices = list(placement.providers(self.cloud))
                return leftovers_of(self.sources, cell, self.selection, self.cloud, self.devices)
            except CloudError as error:
                self.unasked = error
        reason = self.unasked.what
        return [q_allocation_drift.unasked(cell.name, reason, rule) for rule in _placed(self.selection)]


def _placed(selection: Selection) -> Iterator[Rule]:
    """Yield the chosen classes that compare rows with Placement."""
    rules_of_placement: tuple[Rule, ...] = (q_allocation_drift, s_phantom_allocation)
    return (rule for rule in rules_of_placement if not selection.classes or rule.CLASS in selection.classes)


def _classes(sources: Sources, selection: Selection, *, placement: bool, hosts: bool) -> frozenset[str]:
    """Return the chosen classes, without those whose source was not given."""
    optional = {
        o_hardware_drift.CLASS: bool(sources.hardware),
        q_allocation_drift.CLASS: placement,
        s_phantom_allocation.CLASS: placement,
        t_domain_drift.CLASS: hosts,
    }
    chosen = selection.classes or frozenset(CLASSES)
    return frozenset(klass for klass in chosen if optional.get(klass, True))

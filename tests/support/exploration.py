"""Explore clean-up: judge each state of a chain (``recorded_state.py``) as it may be found later.

The truth is the hypervisors' record of running domains and their devices, never clean-up's own readers.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpustack.changes.change import ChangeResult
from gpustack.cloud import placement
from gpustack.novadb import read
from gpustack.novadb.databases import Database
from gpustack.novadb.model import PciRow
from gpustack.novadb.sources import Sources
from gpustack.repair import apply, plan
from gpustack.repair.apply import writing
from gpustack.repair.hypervisor import UNKNOWN, Usage
from gpustack.repair.outcome import key
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Status, Verdict
from gpustack_demo.embedded.control import ControlError
from support.books import Books
from support.cellfile import answering
from support.cleanup_runs import run, undone, verdict_of
from support.cloudworld import World
from support.judged_place import Place
from support.recorded_state import DATABASES, Device, State
from support.walks import Walk

AGES = (timedelta(hours=2), timedelta(hours=30))
FATES = ("up", "dead", "off", "unreachable")
"""What became of the hosts: nova-compute runs; it is dead while instances run; no power; running, and not reachable."""
HAUNTED = "haunted"
"""A domain runs there with each device of a stale row: its end was lost, which only the host's answer shows."""
LATER = (
    "UPDATE pci_devices SET deleted = id, status = 'removed' WHERE id = :id",
    "UPDATE pci_devices SET deleted = CASE deleted WHEN 0 THEN id ELSE 0 END WHERE id = :id",
    "UPDATE pci_devices SET product_id = 'ffff' WHERE id = :id",
    "UPDATE pci_devices SET created_at = '2026-11-30 00:00:00.000000' WHERE id = :id",
    "UPDATE compute_nodes SET uuid = 'x' || substr(uuid, 2) WHERE id = :node",
    "UPDATE instances SET deleted = CASE deleted WHEN 0 THEN id ELSE 0 END WHERE uuid = :owner",
)
"""Later changes of a repaired row, its compute node or its owner, none of which writes the row's ``updated_at``."""
MEANWHILE: Mapping[str, str] = {
    "compute_nodes": "UPDATE compute_nodes SET hypervisor_hostname = hypervisor_hostname || 'x' WHERE id = :node",
    "services": (
        "UPDATE services SET deleted = CASE deleted WHEN 0 THEN id ELSE 0 END WHERE id ="
        " (SELECT max(id) FROM services WHERE host = :host AND \"binary\" = 'nova-compute')"
    ),
    "instances": "UPDATE instances SET deleted = CASE deleted WHEN 0 THEN id ELSE 0 END WHERE uuid = :owner",
    "instance_extra": (
        "UPDATE instance_extra SET pci_requests = '[]' WHERE instance_uuid ="
        " (SELECT uuid FROM instances WHERE uuid = :owner AND deleted = 0) AND pci_requests <> '[]'"
    ),
    "migrations": "UPDATE migrations SET status = 'preparing' WHERE instance_uuid = :owner AND deleted = 0",
    "pci_devices": (
        "UPDATE pci_devices SET status = 'claimed', instance_uuid = :owner"
        " WHERE compute_node_id = :node AND id <> :id AND instance_uuid IS NULL AND :owner IS NOT NULL AND deleted = 0"
    ),
    "row": "UPDATE pci_devices SET request_id = 'x' || substr(coalesce(request_id, ''), 2) WHERE id = :id",
}
"""What others may write between the judgement of a repair and its statement, by the guard that has to notice it."""
Held = tuple[str, str, str, int]
"""An allocation: consumer, name of the provider, resource class, amount."""
ENDED = ("error", "failed", "confirmed", "reverted", "completed", "done", "cancelled", "accepted")
"""Statuses of migrations that no service and no person continues."""


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A state after its repairs.

    :ivar cell: the file of its cell.
    :ivar freed: the devices that were freed.
    """

    state: State
    cell: Path
    freed: frozenset[Device]


@dataclass
class Explored:
    """What was found: numbers for the page.

    :ivar states: the digests of the judged states.
    :ivar starts: how often nova-compute was started on a state, by whether the state was repaired before.
    """

    chains: int = 0
    states: set[str] = field(default_factory=set)
    verdicts: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)
    raced: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    falsified: int = 0
    """How many clouds with verdicts were judged with each falsification of their evidence."""
    keep: Path | None = None
    """Where the states in which something was repaired are kept."""
    leaks: list[State] = field(default_factory=list)
    repaired: Repaired | None = None
    """A repaired state of this chain, to start nova-compute on it."""

    def judge(self, state: State, world: World, place: Place) -> None:
        """Judge a state at each age and with each fate of its hosts. Only nova-computes that are up change the plan."""
        if state.digest in self.states:
            return
        self.states.add(state.digest)
        cloud = world.api if world.placement else None
        world.nova.control.restore_placement(state.directory / "placement.sqlite")
        for age in AGES:
            for fates in (FATES[:1], FATES[1:]):
                now = state.moment + age
                sources = place.found(state.directory, now, up=fates == FATES[:1])
                with _at(now):
                    selection = Selection(hosts=frozenset(state.hosts))
                    made = plan.make(sources, selection, cloud)
                    if made.unasked is not None:  # no verdict: neither a finding nor a mutant's
                        raise made.unasked
                    verdicts = made.verdicts
                    self.verdicts.update(f"{v.klass} {v.status}" for v in verdicts)
                    stale = {key(verdict.to_dict()): verdict for verdict in verdicts if verdict.status is Status.STALE}
                    for fate in (*fates, HAUNTED) if stale else ():
                        story = f"state {state.directory.name}, {age} later, hosts {fate}"
                        gone = frozenset(state.hosts) if fate == "off" else frozenset()
                        self._repair(state, world, sources, place, stale, replace(selection, gone=gone), fate, story)

    def _repair(
        self,
        state: State,
        world: World,
        sources: Sources,
        place: Place,
        stale: dict[Any, Verdict],
        selection: Selection,
        fate: str,
        story: str,
    ) -> None:
        """Repair what is stale, plan again, undo; the databases are then as before."""
        users = {} if fate == "off" else dict(state.users)
        for verdict in stale.values() if fate == HAUNTED else ():
            users |= {(verdict.host, row.address): frozenset({verdict.owner or UNKNOWN}) for row in verdict.rows}
        cloud, directory = world.api if world.placement else None, place.directory
        before, offered, allocated = place.dump(), _available(place), _allocations(world, directory)
        path, wanted = directory / "journal", [verdict.to_dict() for verdict in stale.values()]
        path.unlink(missing_ok=True)
        ask = _asked(sources, users, answer=fate in ("up", "dead", HAUNTED))
        outcomes = run(sources, path, wanted, ask, selection, cloud)
        done = [stale[key(verdict_of(o))] for o in outcomes if o.result is ChangeResult.DONE]
        if not done:
            assert place.dump() == before, f"{story}: written without a repair"
            assert _allocations(world, directory) == allocated, f"{story}: allocations written without a repair"
            return
        self.writes.update(f"{verdict.klass} {verdict.repair}" for verdict in done)
        if self.keep is not None and all(state.digest != leak.digest for leak in self.leaks):
            kept = shutil.copytree(state.directory, self.keep / state.digest)
            self.leaks.append(replace(state, directory=kept))
        # A host that is down offers nothing. What its nova-compute frees itself when it starts needs no answer.
        spared = {(v.host, row.address) for v in done for row in v.rows if all(q.spared for q in v.questions or ())}
        offered_now = _available(place) - offered
        unasked = {device for device in spared & offered_now if fate == "up" and device[0] in _serving(place)}
        assert not unasked, f"{story}: no answer of a host that is up was needed: {unasked}"
        freed = offered_now - spared
        held = {(v.host, row.address) for v in done if v.migrations and not v.lingering for row in v.rows if row.live}
        used = {device: users[device] for device in (freed | held) & users.keys()}
        assert not used, f"{story}: freed, and in use: {used}; {[o.detail for o in outcomes]}"
        removed = allocated - _allocations(world, directory)
        living = {held for held in removed if _is_living(held, users, place)}
        assert not living, f"{story}: removed, and of a living instance or move: {living}"
        again = plan.make(sources, selection, cloud).repairs
        ids = {row.id for verdict in done for row in verdict.rows}
        twice = [verdict for verdict in again if ids & {row.id for row in verdict.rows} and not verdict.migrations]
        assert not twice, f"{story}: stale again after its repair: {twice}"
        useful = frozenset(offered_now - users.keys())
        if fate in ("up", "dead") and len(useful) >= len(self.repaired.freed if self.repaired else ()):
            self.repaired = Repaired(state=state, cell=state.directory / "repaired.sqlite", freed=useful)
            place.save(self.repaired.cell)
        twice = [
            verdict for verdict in again if verdict.allocation and verdict.allocation in {v.allocation for v in done}
        ]
        assert not twice, f"{story}: stale again after its repair: {twice}"
        self._later(world, sources, place, [row for verdict in done for row in verdict.rows], story)
        results = undone(path, sources, cloud)
        self.undone.update(outcome.result.value for outcome in results)
        assert all(outcome.result is ChangeResult.DONE for outcome in results), f"{story}: not undone: {results}"
        assert place.dump() == before, f"{story}: undo is not exact"
        assert _allocations(world, directory) == allocated, f"{story}: undo is not exact in Placement"
        for verdict in done if fate in ("up", "dead") else ():
            if verdict.rows:
                self._race(sources, place, verdict, ask, selection, story)

    def _later(self, world: World, sources: Sources, place: Place, rows: list[PciRow], story: str) -> None:
        """Change what was repaired as Nova may do later, and undo: rows of another lifetime are not restored."""
        path, cloud = place.directory / "journal", world.api if world.placement else None
        lines = path.read_bytes()
        for statement in LATER:
            with place.kept():
                written = _write_each(place, statement, rows)
                changed = place.dump()
                results = undone(path, sources, cloud)
                self.undone.update(f"{outcome.result.value} after a later change" for outcome in results)
                world.nova.control.restore_placement(place.directory / "placement-now.sqlite")
                restored = {row[0] for row in set(place.dump()["pci_devices"]) - set(changed["pci_devices"])}
                assert not restored & written, f"{story}: restored over a later change ({statement}): {restored}"
            path.write_bytes(lines)

    def _race(
        self,
        sources: Sources,
        place: Place,
        verdict: Verdict,
        ask: Callable[[str], Usage],
        selection: Selection,
        story: str,
    ) -> None:
        """Let others write what a verdict rests on just before the repair does: it then writes nothing."""
        path = place.directory / "raced"
        for guard, statement in MEANWHILE.items():
            path.unlink(missing_ok=True)
            with place.kept():
                with _others_first(place, statement, verdict) as found:
                    run(sources, path, [verdict.to_dict()], ask, selection)
                self.raced.update([guard] if found else [])
                assert not found or place.dump() == found[0], f"{story}: written, although others wrote ({guard})"

    def start(self, walk: Walk) -> None:
        """Start a real nova-compute on a repaired state of the chain, and on the same without the repair."""
        repaired, self.repaired = self.repaired, None
        if repaired is None:
            return
        kept = _started(walk, repaired.state, repaired.state.directory / "cell1.sqlite")
        self.starts["kept: started" if kept is not None else "kept: nova-compute refuses to start"] += 1
        exposed = _started(walk, repaired.state, repaired.cell)
        assert kept is None or exposed is not None, "nova-compute does not start after the repair"
        if exposed is None:
            return
        self.starts["repaired: started"] += 1
        assert exposed <= (kept or set()), f"offered and in use after the repair: {exposed - (kept or set())}"
        # With PCI in Placement, an allocation that class Q would remove still keeps instances away.
        devices = placement.providers(walk.world.api) if walk.world.placement else ()
        held = {(host, address) for host, _, address in (d.name.partition("_") for d in devices if d.held)}
        books = Books(walk, freed=set(repaired.freed - held))
        free = {
            (host, device["address"])
            for host in walk.running()
            for device in walk.world.nova.control.tracker(host)["devices"]
            if device["status"] == "available"
        }
        taken = {row.device for row in books.rows() if row.managed and row.owner in books.homes()}
        freed = {device for device in books.freed if device[0] in walk.running()}
        assert freed <= free | taken, f"the repair is not kept: {freed - free - taken}"
        books.fill(exposed)
        self.starts["devices freed by a repair, each in use by a new instance"] += len(freed)

    def page(self, seed: int, release: str) -> str:
        """The numbers as a page."""
        lines = [
            "# Explored states of clean-up",
            "",
            f"Nova {release}, seed {seed}: {self.chains} chains, {len(self.states)} different states at their commits.",
            f"Each was judged {' and '.join(map(str, AGES))} later, with hosts {', '.join((*FATES, HAUNTED))}.",
            "",
            "No repair freed a device that a domain uses, none was needed twice, and undo restored each to the byte.",
            "No row was restored after a later change of its lifetime, and none written after others wrote first.",
            f"No falsification of a piece of evidence made a verdict bolder, in {self.falsified} clouds with verdicts.",
        ]
        counted = {
            "Verdicts": self.verdicts,
            "Repairs": self.writes,
            "Undo": self.undone,
            "Others wrote first": self.raced,
        }
        for title, counts in {**counted, "Starts of nova-compute": self.starts}.items():
            lines += ["", f"## {title}", "", "| what | number |", "|---|---|"]
            lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
        return "\n".join([*lines, ""])


def _started(walk: Walk, state: State, cell: Path) -> set[Device] | None:
    """Let the cloud be as in a state, start its nova-computes, run their periodic tasks; None if one refuses.

    Hosts whose service was deleted stay off: nova-compute does not register again while instances are there.

    :return: the devices that are offered, and in use.
    """
    control, directory = walk.world.nova.control, walk.world.nova.directory
    for host in walk.hosts:
        control.power_off_host(host)
        control.expire_messages(host)  # the state is found hours later; and both starts must be alike
    for name, source in {**{name: state.directory / f"{name}.sqlite" for name in DATABASES}, "cell1": cell}.items():
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(directory / f"{name}.sqlite")) as new:
            old.backup(new)
    control.restore_placement(state.directory / "placement.sqlite")
    query = (
        "SELECT c.host, c.uuid FROM compute_nodes c JOIN services s ON s.host = c.host"
        " WHERE c.deleted = 0 AND s.deleted = 0"
    )
    with closing(sqlite3.connect(directory / "cell1.sqlite", timeout=30)) as database, database:
        database.execute("UPDATE services SET forced_down = 0")
        nodes = {host: uuid for host, uuid in database.execute(query) if host in walk.hosts}
    walk.dead, walk.stopped = set(walk.hosts) - set(nodes), set()
    walk.forgotten = set(walk.dead)
    try:
        for host in walk.hosts:
            control.place(host, state.domains[host])
        for host, uuid in nodes.items():
            control.restart_compute(host, kill=True, compute_id=uuid)
        for host in [*nodes, *nodes]:
            control.periodic(host)
    except ControlError as error:
        walk.history.append(f"nova-compute does not start: {error}")
        return None
    return Books(walk).exposed()


def _asked(sources: Sources, users: dict[Device, frozenset[str]], *, answer: bool) -> Callable[[str], Usage]:
    def ask(host: str) -> Usage:
        if not answer:
            return Usage(gap="no route to host")
        of_host = {address: uuids for (name, address), uuids in users.items() if name == host}
        return replace(answering(sources)(host), users=of_host, names=frozenset({host}))

    return ask


@contextlib.contextmanager
def placement_kept(world: World, path: Path) -> Iterator[None]:
    """Restore Placement after states were judged, each with its own."""
    world.nova.control.keep_placement(path)
    try:
        yield
    finally:
        world.nova.control.restore_placement(path)


@contextlib.contextmanager
def _others_first(place: Place, statement: str, verdict: Verdict) -> Iterator[list[object]]:
    """Let others write once, just before the first transaction of a repair; yield what the cell has then."""
    found: list[object] = []

    @contextlib.contextmanager
    def written(database: Database) -> Iterator[sa.Connection]:
        if not found:
            written_rows = _write_each(place, statement, verdict.rows, verdict.host)
            found.extend([place.dump()] if written_rows else [])
        with writing(database) as connection:
            yield connection

    apply.writing = written
    try:
        yield found
    finally:
        apply.writing = writing


@contextlib.contextmanager
def _at(now: datetime) -> Iterator[None]:
    """Let the database's clock show a time."""
    original = read.now
    read.now = lambda connection: now
    try:
        yield
    finally:
        read.now = original


def _write_each(place: Place, statement: str, rows: Sequence[PciRow], host: str | None = None) -> set[int]:
    """Write what a statement names of rows, each owner, node and host once; return the ids of the rows it concerns."""
    names = {":id": "id", ":owner": "instance_uuid", ":node": "compute_node_id"}
    columns = [column for name, column in names.items() if name in statement]
    subjects = {tuple(getattr(row, column) for column in columns): row for row in rows}
    written = {subject for subject, row in subjects.items() if _write(place, statement, row, host)}
    return {row.id for row in rows if tuple(getattr(row, column) for column in columns) in written}


def _write(place: Place, statement: str, row: PciRow, host: str | None) -> bool:
    """Write a cell; return whether a row was changed."""
    values = {"id": row.id, "owner": row.instance_uuid, "node": row.compute_node_id, "host": host}
    return place.write(statement, {name: value for name, value in values.items() if f":{name}" in statement})


def _allocations(world: World, directory: Path) -> set[Held]:
    """The allocations of Placement as it is now."""
    path = directory / "placement-now.sqlite"
    world.nova.control.keep_placement(path)
    query = (
        "SELECT a.consumer_id, p.name, a.resource_class_id, a.used FROM allocations a"
        " JOIN resource_providers p ON p.id = a.resource_provider_id"
    )
    with closing(sqlite3.connect(path)) as database:
        return set(database.execute(query))


def _is_living(held: Held, users: dict[Device, frozenset[str]], place: Place) -> bool:
    """Whether the consumer's domain runs with the device, or the consumer is a migration that may go on."""
    consumer, (host, _, address) = held[0], held[1].partition("_")
    found = place.rows("SELECT status FROM migrations WHERE uuid = :uuid AND deleted = 0", uuid=consumer)
    return consumer in users.get((host, address), ()) or any(status not in ENDED for (status,) in found)


def _serving(place: Place) -> set[str]:
    """The hosts whose nova-compute has a service: the others offer nothing, also if they run."""
    return {
        host for (host,) in place.rows("SELECT host FROM services WHERE \"binary\" = 'nova-compute' AND deleted = 0")
    }


def _available(place: Place) -> set[Device]:
    """The devices that Nova offers: live rows that are available, on live compute nodes."""
    query = (
        "SELECT c.host, p.address FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id"
        " WHERE p.status = 'available' AND p.deleted = 0 AND c.deleted = 0"
    )
    return {(host, address) for host, address in place.rows(query)}

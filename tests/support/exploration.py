"""Explore clean-up: keep the state of a cloud after each commit of a chain, and judge each as it may be found later.

The truth is the hypervisors' record of running domains and their devices, never clean-up's own readers. States are kept
from SQLite files only.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpustack.base.errors import GpustackError
from gpustack.changes.change import ChangeResult
from gpustack.novadb import read
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.hypervisor import Usage
from gpustack.repair.outcome import key
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Status, Verdict
from support.cellfile import CELL_TABLES, answering
from support.cleanup_runs import run, undone, verdict_of
from support.walks import Walk

DATABASES = ("api", "cell0", "cell1")
AGES = (timedelta(hours=2), timedelta(hours=30))
FATES = ("up", "dead", "off", "unreachable")
"""What became of the hosts: nova-compute runs; it is dead while instances run; no power; running, and not reachable."""
LATER = (
    "UPDATE pci_devices SET deleted = id, status = 'removed' WHERE id = :id",
    "UPDATE pci_devices SET deleted = CASE deleted WHEN 0 THEN id ELSE 0 END WHERE id = :id",
    "UPDATE pci_devices SET product_id = 'ffff' WHERE id = :id",
    "UPDATE pci_devices SET created_at = '2026-11-30 00:00:00.000000' WHERE id = :id",
    "UPDATE compute_nodes SET uuid = 'another' WHERE id = (SELECT compute_node_id FROM pci_devices WHERE id = :id)",
)
"""Later changes of a repaired row or its compute node, none of which writes ``updated_at``."""
Device = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class State:
    """Databases, and the users of devices, at one commit."""

    directory: Path
    moment: datetime
    users: dict[Device, frozenset[str]]


@dataclass
class Recorder:
    """Keeps each new state of a walk's cell while the walk goes on. A thread watches SQLite's number of commits."""

    walk: Walk
    directory: Path
    states: list[State] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Recorder:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        source = self.walk.world.nova.directory / "cell1.sqlite"
        with closing(sqlite3.connect(source, timeout=30)) as cell:
            last = None
            while True:
                over = self._over.is_set()
                (version,) = cell.execute("PRAGMA data_version").fetchone()
                if version != last:
                    last = version
                    with contextlib.suppress(GpustackError, OSError, sqlite3.Error):  # a host is being started
                        self._keep()
                if over:
                    return
                self._over.wait(0.005)

    def _keep(self) -> None:
        before = self._users()
        target = self.directory / f"{len(self.states):04d}"
        target.mkdir(parents=True)
        for name in DATABASES:
            source = self.walk.world.nova.directory / f"{name}.sqlite"
            with (
                closing(sqlite3.connect(source, timeout=30)) as old,
                closing(sqlite3.connect(target / f"{name}.sqlite")) as new,
            ):
                old.backup(new)
        after = self._users()
        users = {device: before.get(device, frozenset()) | after.get(device, frozenset()) for device in before | after}
        digest = hashlib.sha256(f"{_content(target, self.walk.hosts)}{sorted(users.items())}".encode()).hexdigest()
        if digest in self._seen:
            shutil.rmtree(target)
            return
        self._seen.add(digest)
        self.states.append(State(directory=target, moment=datetime.now(UTC).replace(tzinfo=None), users=users))

    def _users(self) -> dict[Device, frozenset[str]]:
        users: dict[Device, frozenset[str]] = {}
        for host in self.walk.hosts:
            for domain in self.walk.world.nova.control.domains(host):
                if domain["state"] == "running":
                    for address in domain["hostdevs"]:
                        users[host, address] = users.get((host, address), frozenset()) | {domain["uuid"]}
        return users


_ROWS = (
    "SELECT p.id, p.status, p.instance_uuid, p.request_id, p.deleted FROM pci_devices p JOIN compute_nodes c"
    " ON c.id = p.compute_node_id"
)


def _content(directory: Path, hosts: list[str]) -> str:
    """The content of a state without times and counters, so that reports of services make no new one."""
    queries = (
        f"{_ROWS} WHERE c.host IN ({', '.join(map(repr, hosts))}) ORDER BY p.id",
        "SELECT uuid, host, node, vm_state, task_state, deleted FROM instances ORDER BY id",
        "SELECT id, status, deleted FROM migrations ORDER BY id",
        "SELECT id, host, deleted FROM compute_nodes ORDER BY id",
        "SELECT id, forced_down, deleted FROM services WHERE \"binary\" = 'nova-compute' ORDER BY id",
    )
    with closing(sqlite3.connect(directory / "cell1.sqlite")) as cell:
        return repr([cell.execute(query).fetchall() for query in queries])


@dataclass
class Explored:
    """What was found: numbers for the page."""

    chains: int = 0
    states: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)

    def judge(self, state: State, hosts: list[str], directory: Path) -> None:
        """Judge a state at each age and with each fate of its hosts. Only nova-computes that are up change the plan."""
        self.states += 1
        for age in AGES:
            for fates in (FATES[:1], FATES[1:]):
                now = state.moment + age
                sources = _found(state, directory, now, up=fates == FATES[:1])
                with _at(now):
                    selection = Selection(hosts=frozenset(hosts))
                    verdicts = plan.make(sources, selection).verdicts
                    self.verdicts.update(f"{v.klass} {v.status}" for v in verdicts)
                    stale = {key(verdict.to_dict()): verdict for verdict in verdicts if verdict.status is Status.STALE}
                    for fate in fates if stale else ():
                        story = f"state {state.directory.name}, {age} later, hosts {fate}"
                        gone = frozenset(hosts) if fate == "off" else frozenset()
                        self._repair(state, sources, directory, stale, replace(selection, gone=gone), fate, story)

    def _repair(
        self,
        state: State,
        sources: Sources,
        directory: Path,
        stale: dict[Any, Verdict],
        selection: Selection,
        fate: str,
        story: str,
    ) -> None:
        """Repair what is stale, plan again, undo; the databases are then as before."""
        users = {} if fate == "off" else state.users
        before, offered = _dump(directory), _available(directory)
        path, wanted = directory / "journal", [verdict.to_dict() for verdict in stale.values()]
        path.unlink(missing_ok=True)
        outcomes = run(sources, path, wanted, _asked(sources, users, answer=fate in ("up", "dead")), selection)
        done = [stale[key(verdict_of(o))] for o in outcomes if o.result is ChangeResult.DONE]
        if not done:
            assert _dump(directory) == before, f"{story}: written without a repair"
            return
        self.writes.update(f"{verdict.klass} {verdict.repair}" for verdict in done)
        # A host that is down offers nothing. What its nova-compute frees itself when it starts needs no answer.
        spared = {(v.host, row.address) for v in done for row in v.rows if all(q.spared for q in v.questions or ())}
        assert not spared or fate != "up", f"{story}: no answer of a host that is up was needed: {spared}"
        freed = _available(directory) - offered - spared
        held = {(v.host, row.address) for v in done if v.migrations and not v.lingering for row in v.rows if row.live}
        used = {device: users[device] for device in (freed | held) & users.keys()}
        assert not used, f"{story}: freed, and in use: {used}; {[o.detail for o in outcomes]}"
        again = plan.make(sources, selection).repairs
        ids = {row.id for verdict in done for row in verdict.rows}
        twice = [verdict for verdict in again if ids & {row.id for row in verdict.rows} and not verdict.migrations]
        assert not twice, f"{story}: stale again after its repair: {twice}"
        self._later(sources, directory, path, sorted(ids), story)
        results = undone(path, sources)
        self.undone.update(outcome.result.value for outcome in results)
        assert all(outcome.result is ChangeResult.DONE for outcome in results), f"{story}: not undone: {results}"
        assert _dump(directory) == before, f"{story}: undo is not exact"

    def _later(self, sources: Sources, directory: Path, path: Path, ids: list[int], story: str) -> None:
        """Change what was repaired as Nova may do later, and undo: rows of another lifetime are not restored."""
        cell, kept = directory / "cell1.sqlite", directory / "kept"
        shutil.copy(cell, kept)
        lines = path.read_bytes()
        for statement in LATER:
            with closing(sqlite3.connect(cell)) as connection, connection:
                for number in ids:
                    connection.execute(statement, {"id": number})
            changed = _dump(directory)
            results = undone(path, sources)
            self.undone.update(f"{outcome.result.value} after a later change" for outcome in results)
            restored = {row[0] for row in set(_dump(directory)["pci_devices"]) - set(changed["pci_devices"])}
            assert not restored & set(ids), f"{story}: restored over a later change ({statement}): {restored}"
            shutil.copy(kept, cell)
            path.write_bytes(lines)

    def page(self, seed: int, release: str) -> str:
        """The numbers as a page."""
        lines = [
            "# Explored states of clean-up",
            "",
            f"Nova {release}, seed {seed}: {self.chains} chains with {self.states} different states at their commits.",
            f"Each was judged {' and '.join(str(age) for age in AGES)} later, with hosts {', '.join(FATES)}.",
            "",
            "No repair freed a device that a domain uses, none was needed twice, and undo restored each to the byte.",
            "No row was restored after a later change of its lifetime.",
        ]
        for title, counts in (("Verdicts", self.verdicts), ("Repairs", self.writes), ("Undo", self.undone)):
            lines += ["", f"## {title}", "", "| what | number |", "|---|---|"]
            lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
        return "\n".join([*lines, ""])


def _found(state: State, directory: Path, now: datetime, *, up: bool) -> Sources:
    """Copy a state to a directory, as it is found at a time: services of the controllers report."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(state.directory, directory)
    with closing(sqlite3.connect(directory / "api.sqlite")) as api, api:
        for name in ("cell0", "cell1"):
            url = f"sqlite:///{directory}/{name}.sqlite"
            api.execute("UPDATE cell_mappings SET database_connection = ? WHERE name = ?", (url, name))
    with closing(sqlite3.connect(directory / "cell1.sqlite")) as cell, cell:
        text = now.strftime("%F %T.%f")
        cell.execute("UPDATE services SET last_seen_up = ? WHERE \"binary\" <> 'nova-compute'", (text,))
        if up:
            cell.execute("UPDATE services SET last_seen_up = ?, updated_at = ?, forced_down = 0", (text, text))
            cell.execute("UPDATE compute_nodes SET updated_at = ? WHERE deleted = 0", (text,))
    conf = directory / "nova.conf"
    conf.write_text(f"[api_database]\nconnection = sqlite:///{directory}/api.sqlite\n")
    return Sources.from_nova_conf([conf])


def _asked(sources: Sources, users: dict[Device, frozenset[str]], *, answer: bool) -> Callable[[str], Usage]:
    def ask(host: str) -> Usage:
        if not answer:
            return Usage(gap="no route to host")
        of_host = {address: uuids for (name, address), uuids in users.items() if name == host}
        return replace(answering(sources)(host), users=of_host, names=frozenset({host}))

    return ask


@contextlib.contextmanager
def _at(now: datetime) -> Iterator[None]:
    """Let the database's clock show a time."""
    original = read.now
    read.now = lambda connection: now
    try:
        yield
    finally:
        read.now = original


def _dump(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(directory / "cell1.sqlite")) as cell:
        return {name: cell.execute(f"SELECT * FROM {name} ORDER BY id").fetchall() for name in CELL_TABLES}


def _available(directory: Path) -> set[Device]:
    """The devices that Nova offers: live rows that are available, on live compute nodes."""
    engine = sa.create_engine(f"sqlite:///{directory}/cell1.sqlite", poolclass=sa.NullPool)
    query = sa.text(
        "SELECT c.host, p.address FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id"
        " WHERE p.status = 'available' AND p.deleted = 0 AND c.deleted = 0"
    )
    with engine.connect() as connection:
        return {(host, address) for host, address in connection.execute(query)}

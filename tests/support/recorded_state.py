"""The states of a cloud: its databases and domains after each commit of a chain. They are kept from SQLite files."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.errors import GpustackError
from support.walks import Walk

DATABASES = ("api", "cell0", "cell1")
"""Nova's databases; that of Placement is in memory."""
Device = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class State:
    """Databases, and the domains with their devices, at one commit.

    :ivar users: the running domains with each device.
    :ivar domains: the definition of each domain of a host, and whether it runs.
    :ivar digest: of the content without names, numbers and times: equal in two chains that led to the same.
    """

    directory: Path
    hosts: list[str]
    moment: datetime
    users: dict[Device, frozenset[str]]
    domains: dict[str, list[tuple[str, bool]]]
    digest: str


@dataclass
class Recorder:
    """Keeps each new state of a walk's cell while the walk goes on. A thread watches SQLite's number of commits."""

    walk: Walk
    directory: Path
    states: list[State] = field(default_factory=list)
    _earlier: tuple[int, int] = (0, 0)
    _seen: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Recorder:
        with closing(sqlite3.connect(self.walk.world.nova.directory / "cell1.sqlite")) as cell:
            queries = (f"SELECT coalesce(max(id), 0) FROM {table}" for table in ("instances", "migrations"))
            self._earlier = tuple(cell.execute(query).fetchone()[0] for query in queries)  # of earlier chains
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
        self.walk.world.nova.control.keep_placement(target / "placement.sqlite")
        after = self._users()
        users = {device: before.get(device, frozenset()) | after.get(device, frozenset()) for device in before | after}
        digest = _digest(target, self.walk.hosts, self._earlier, users)
        if digest in self._seen:
            shutil.rmtree(target)
            return
        self._seen.add(digest)
        domains = {host: self.walk.world.nova.control.definitions(host) for host in self.walk.hosts}
        moment = datetime.now(UTC).replace(tzinfo=None)
        self.states.append(
            State(directory=target, hosts=self.walk.hosts, moment=moment, users=users, domains=domains, digest=digest)
        )

    def _users(self) -> dict[Device, frozenset[str]]:
        users: dict[Device, frozenset[str]] = {}
        for host in self.walk.hosts:
            for domain in self.walk.world.nova.control.domains(host):
                if domain["state"] == "running":
                    for address in domain["hostdevs"]:
                        users[host, address] = users.get((host, address), frozenset()) | {domain["uuid"]}
        return users


_NAMES = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\bgpu\d+\b")
_ROWS = (
    "SELECT c.host, p.address, p.status, p.instance_uuid, p.request_id, p.deleted <> 0, c.deleted <> 0"
    " FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id WHERE c.host IN ({hosts}) ORDER BY p.id"
)
_MOVES = (
    "SELECT instance_uuid, source_compute, dest_compute, migration_type, status, deleted <> 0 FROM migrations"
    " WHERE id > {migrations} ORDER BY id"
)
_CONTENT = (
    _ROWS,
    _MOVES,
    "SELECT uuid, host, node, vm_state, task_state, deleted <> 0 FROM instances WHERE id > {instances} ORDER BY id",
    "SELECT host, deleted <> 0 FROM compute_nodes WHERE host IN ({hosts}) ORDER BY id",
    "SELECT host, forced_down, disabled, deleted <> 0 FROM services WHERE host IN ({hosts}) ORDER BY id",
)


def _digest(directory: Path, hosts: list[str], earlier: tuple[int, int], users: dict[Device, frozenset[str]]) -> str:
    """Hash the content of a state without times and counters, so that reports of services make no new one.

    Uuids and hosts are replaced by the order in which they appear.
    """
    values = {"hosts": ", ".join(map(repr, hosts)), "instances": earlier[0], "migrations": earlier[1]}
    with closing(sqlite3.connect(directory / "cell1.sqlite")) as cell:
        content = [hosts, *(cell.execute(query.format(**values)).fetchall() for query in _CONTENT)]
    text = f"{content} {[(device, sorted(users[device])) for device in sorted(users)]}"
    numbers: dict[str, str] = {}
    named = _NAMES.sub(lambda name: numbers.setdefault(name[0], f"<{len(numbers)}>"), text)
    return hashlib.sha256(named.encode()).hexdigest()

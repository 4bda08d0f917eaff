"""Small clouds of two cells, drawn at random, with correct evidence; and the falsifications of each piece of evidence.

A state has two hosts with devices, one owner in any place, and moves of it; sometimes an instance that lacks a device.
Its evidence is consistent: a host that is up has reported, an idle one without a write of its compute node, and
mappings name the cells that have the records.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import sqlalchemy as sa

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.changes.change import ChangeResult
from gpustack.cloud.placement import Inventory, Provider
from gpustack.novadb import tables
from gpustack.novadb.hardware import Hardware, Present
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Repair, Status, Verdict
from support.cellfile import CellFile, ago, answering, nova_conf
from support.cleanup_runs import attempted, verdict_of

GPU = Present(vendor_id="10de", product_id="11b4", dev_type="type-PCI")
VM, OTHER = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
CELLS = ("cell1", "cell2")
SELECTION = Selection(service_down_time=timedelta(seconds=120))
Boldness = Mapping[object, int]
REPAIRS = list(Repair)


def boldness(verdict: Verdict) -> int:
    """Report only is 0, *heals* 1, *stale* more by the order of repairs."""
    if verdict.status is Status.STALE and verdict.repair is not None:
        return 2 + REPAIRS.index(verdict.repair)
    return 1 if verdict.status is Status.HEALS else 0


@dataclass
class SmallCloud:
    """A cloud in SQLite files; ``restore`` brings back the state before a falsification."""

    directory: Path
    cells: list[CellFile] = field(default_factory=list)
    began: datetime = field(default_factory=lambda: ago(0))
    """The time of the database's clock: it stands still, so that no host goes down on a slow machine."""
    moment: timedelta = timedelta(0)
    """How far the database's clock is wrong."""
    placement: FakePlacement = field(default_factory=lambda: FakePlacement())
    hardware: dict[str, Hardware] = field(default_factory=dict)
    repairs: frozenset[str] = frozenset()
    """The repairs of rows that were planned last, each with all that decides whether ``apply`` carries it out."""
    _judged: dict[object, tuple[dict[object, int], frozenset[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cells = [CellFile(f"sqlite:///{self.directory}/{name}.sqlite") for name in CELLS]
        self.conf = nova_conf(self.directory, {cell: made.url for cell, made in zip(CELLS, self.cells, strict=True)})
        self._kept = self.directory / "kept"
        self._empty = self.directory / "empty"
        _copy(self.directory, self._empty)

    def clear(self) -> None:
        """Empty the databases."""
        self._judged.clear()
        _copy(self._empty, self.directory)
        for cell in self.cells:
            cell._ids = itertools.count(1)
            cell.conductor(-45)
        self.moment, self.began = timedelta(0), ago(0)
        self.placement.lost = False

    def keep(self) -> None:
        """Keep the databases as they are now."""
        self._devices, self._hardware = list(self.placement.devices), dict(self.hardware)
        _copy(self.directory, self._kept)

    def restore(self) -> None:
        _copy(self._kept, self.directory)
        self.moment = timedelta(0)
        self.placement.devices, self.placement.lost = list(self._devices), False
        self.hardware = dict(self._hardware)

    def sql(self, database: str, statement: str) -> None:
        engine = sa.create_engine(f"sqlite:///{self.directory}/{database}.sqlite", poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def judged(self, selection: Selection = SELECTION) -> dict[object, int]:
        """The boldest verdict of each row, and of each host without rows, by its database file.

        Those of rows and those of allocations are apart. The same evidence is judged once: a falsification often writes
        what was there.
        """
        evidence = (self._content(), selection)
        if evidence not in self._judged:
            self._judged[evidence] = (self._judge(selection), self.repairs)
        bold, self.repairs = self._judged[evidence]
        return bold

    def _content(self) -> object:
        """All that a plan reads."""
        content: list[object] = [self.moment, repr(self.placement), repr(self.hardware)]
        for name in ("api", *CELLS):
            with closing(sqlite3.connect(self.directory / f"{name}.sqlite")) as database:
                for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                    content += [table, *database.execute(f"SELECT * FROM {table}").fetchall()]
        return tuple(content)

    def _judge(self, selection: Selection) -> dict[object, int]:
        self.repairs = frozenset()
        sources = replace(Sources.from_nova_conf([self.conf]), hardware=self.hardware)
        files = {cell.name: cell.database.url.database for cell in sources.cells}
        try:
            verdicts = plan.make(sources, selection, self.placement).verdicts  # type: ignore[arg-type]
        except DatabaseError:
            return {}
        self.repairs = frozenset(
            str((v.klass, files[v.cell], v.rows, v.repair, v.migrations, v.stop, v.lingering, v.questions))
            for v in verdicts
            if v.status is Status.STALE and v.klass not in "QS"
        )
        bold: dict[object, int] = {}
        for verdict in verdicts:
            place = (files[verdict.cell], verdict.klass in "QS")
            keys: list[object] = [(place, row.id) for row in verdict.rows]
            for key in keys or [(place, verdict.host)]:
                bold[key] = max(bold.get(key, 0), boldness(verdict))
        return bold

    def leaks(self) -> set[tuple[str, str, int]]:
        """Each row with a verdict and its class; what is protected may be no leak."""
        verdicts = plan.make(Sources.from_nova_conf([self.conf]), SELECTION).verdicts
        return {(v.cell, v.klass, row.id) for v in verdicts if v.status is not Status.PROTECTED for row in v.rows}

    def repaired(self, ask: Callable[[str], Usage]) -> set[int]:
        """Carry out all repairs, if hosts answer like this; return the rows of those that were."""
        sources, journal = Sources.from_nova_conf([self.conf]), self.directory / "journal"
        journal.unlink(missing_ok=True)
        repairs = [verdict.to_dict() for verdict in plan.make(sources, SELECTION).repairs]
        outcomes = attempted(sources, journal, repairs, ask, SELECTION) if repairs else ()
        done = (verdict_of(outcome) for outcome in outcomes if outcome.result is ChangeResult.DONE)
        return {device["id"] for verdict in done for device in verdict["devices"]}

    def written(self, ask: Callable[[str], Usage], selection: Selection = SELECTION) -> set[object]:
        """The rows that ``apply`` writes if hosts answer like this; then the databases are as they were.

        Each repair is carried out alone: one may write what another rests on, and then only the first is done.
        """
        sources = Sources.from_nova_conf([self.conf])
        try:
            planned = [verdict.to_dict() for verdict in plan.make(sources, selection).repairs]
        except DatabaseError:
            return set()
        if not planned:
            return set()
        before = [cell.dump() for cell in self.cells]
        journal, as_planned = self.directory / "journal", self.directory / "planned"
        _copy(self.directory, as_planned)
        rows: set[object] = set()
        for repair in planned:
            journal.unlink(missing_ok=True)
            attempted(sources, journal, [repair], ask, selection)
            for cell, old in zip(self.cells, before, strict=True):
                rows |= {
                    (cell.url, table, row[0])
                    for table, records in cell.dump().items()
                    for row in set(records) - set(old[table])
                }
            _copy(as_planned, self.directory)
        self.restore()
        return rows


def _copy(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.glob("*.sqlite"):
        shutil.copy(path, target / path.name)


@dataclass
class FakePlacement:
    """A fake of Placement for its readers: a real one for each small cloud would take minutes.

    :ivar lost: whether it does not answer.
    """

    devices: list[Provider] = field(default_factory=list)
    lost: bool = False

    def providers(self, _cloud: object, roots: Iterable[str] | None = None) -> Iterator[Provider]:
        if self.lost:
            raise CloudError("Placement does not answer")
        wanted = None if roots is None else set(roots)
        # The real reader leaves out what is named like no device.
        return (device for device in self.devices if device.address and (wanted is None or device.root in wanted))

    def inventory(self, _cloud: object, provider: str) -> Inventory:
        return Inventory(provider=provider, generation=1, classes={"CUSTOM_GPU": {"total": 1, "reserved": 0}})

    def allocations_of(self, _cloud: object, consumer: str) -> dict[str, Any]:
        held = [device.uuid for device in self.devices if consumer in device.held]
        allocations = {uuid: {"resources": {"CUSTOM_GPU": 1}} for uuid in held}
        return {"allocations": allocations, "consumer_generation": 1, "project_id": "p", "user_id": "u"}

    def stranger(self, _cloud: object, consumer: str, _provider: Provider) -> tuple[tuple[str, ...], datetime]:
        return (f"consumer {consumer}",), ago(100_000)


def draw(cloud: SmallCloud, random: Random) -> None:
    """Fill a cloud with a new state."""
    powers, nodes = _hosts(cloud, random)
    first = cloud.cells[0]
    number = 0
    for host in ("h1", "h2"):
        for _device in range(random.randint(1, 2)):
            number += 1
            taken = random.random() < 0.8
            row = first.device(
                nodes[host],
                f"0000:0{number}:00.0",
                random.choice(("allocated", "allocated", "claimed"))
                if taken
                else random.choice(("available", "unavailable")),
                instance_uuid=VM if taken else None,
                request_id=random.choice(("r1", "x")) if taken else None,
            )
            _elsewhere(cloud, host, f"0000:0{number}:00.0", taken, random)
            if random.random() < 0.1:
                cloud.sql("cell1", f"UPDATE pci_devices SET deleted = id WHERE id = {row}")
    for cell in cloud.cells:
        _pools(cell)
    _owner(cloud, VM, random)
    _host_mappings(cloud, powers)
    if random.random() < 0.3:
        first.instance(OTHER, random.choice(("h1", "h2")), updated_at=ago(100_000))
        cloud.sql("api", f"INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES ('{OTHER}', 1)")
    cloud.keep()


def draw_family(cloud: SmallCloud, random: Random) -> None:
    """Fill a cloud with a new state: physical functions with two virtual ones, of two instances in any places."""
    powers, nodes = _hosts(cloud, random)
    for number, host in enumerate(("h1", "h2"), 1):
        owners: list[str | None] = [None, None, None]
        if random.random() < 0.5:
            owners[0] = random.choice((VM, OTHER))
        if owners[0] is None or random.random() < 0.5:  # Nova never gives both; a row is left behind
            owners[1:] = random.choices((VM, OTHER, None), k=2)
        for function, owner in enumerate(owners):
            relatives = owners[1:] if function == 0 else owners[:1]
            blocked = any(relatives) and random.random() < 0.8
            address, parent = f"0000:0{number}:00.{function}", f"0000:0{number}:00.0"
            cloud.cells[0].device(
                nodes[host],
                address,
                random.choice(("allocated", "claimed")) if owner else "unavailable" if blocked else "available",
                dev_type="type-VF" if function else "type-PF",
                parent_addr=parent if function else None,
                instance_uuid=owner,
                request_id=random.choice(("r1", "x")) if owner else None,
            )
            _present(cloud, host, address, replace(GPU, dev_type="type-VF" if function else "type-PF"))
        held = Counter(owner for owner in owners if owner and random.random() < 0.8)
        parent = f"0000:0{number}:00.0"  # Nova's provider of all functions
        cloud.placement.devices.append(_provider(host, parent, held))
    for cell in cloud.cells:
        _pools(cell)
    for uuid in (VM, OTHER):
        _owner(cloud, uuid, random)
    _host_mappings(cloud, powers)
    cloud.keep()


def _hosts(cloud: SmallCloud, random: Random) -> tuple[dict[str, str], dict[str, int]]:
    """Empty a cloud; insert two hosts in the first cell and one in the second. Return what they do, and their ids."""
    cloud.clear()
    cloud.placement.devices, cloud.hardware = [], {}
    first, second = cloud.cells
    powers = {name: random.choice(("up", "down", "down", "gone", "deleted")) for name in ("h1", "h2", "h3")}
    return powers, {
        name: _host(second if name == "h3" else first, name, power, idle=random.random() < 0.5)
        for name, power in powers.items()
    }


def _owner(cloud: SmallCloud, uuid: str, random: Random) -> None:
    """Insert records of an instance, its moves and its mapping."""
    first, second = cloud.cells
    records = random.choice((("h1",), ("h2",), ("h2",), ("h3",), ("h2", "h3"), ("h9", "h3"), (), ()))
    dead = random.random() < 0.2
    for host in records:
        state = random.choice(("active", "active", "active", "resized", "error"))
        task = random.choice((None, None, None, "rebuilding"))
        deleted = 77 if dead else 0
        age = ago(random.choice((3600, 100_000)))
        (second if host == "h3" else first).instance(
            uuid, host, vm_state=state, task_state=task, deleted=deleted, updated_at=age
        )
    for _move in range(random.choice((0, 0, 1, 1, 2))):
        cell = random.choice((first, first, second))
        ends = random.choice((("h1", "h2"), ("h2", "h1"), ("h1", "h3"), ("h2", "h3")))
        status = random.choice(("error", "error", "migrating", "finished", "confirmed", "failed", "odd"))
        cell.move(uuid, *ends, status, updated_at=ago(random.choice((3600, 100_000))))
    if records:
        where = 2 if random.choice(records) == "h3" else 1
        cloud.sql("api", f"INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES ('{uuid}', {where})")


def _host_mappings(cloud: SmallCloud, powers: Mapping[str, str]) -> None:
    for host, power in powers.items():
        if power in ("up", "down"):
            cloud.sql("api", f"INSERT INTO host_mappings (host, cell_id) VALUES ('{host}', {2 if host == 'h3' else 1})")
    if powers["h3"] not in ("up", "down"):
        # Another host names the second cell: otherwise nothing shows that the record of the cell was deleted.
        cloud.sql("api", "INSERT INTO host_mappings (host, cell_id) VALUES ('h4', 2)")


def leak(cloud: SmallCloud, places: Iterable[str]) -> None:
    """Fill a cloud with a row on ``h1``, which is down. Its owner is in other places; on ``h3``, it has a task."""
    cloud.clear()
    cloud.placement.devices, cloud.hardware = [], {}
    first, second = cloud.cells
    nodes = {host: _host(second if host == "h3" else first, host, "down", idle=True) for host in ("h1", "h2", "h3")}
    first.device(nodes["h1"], "0000:01:00.0", "allocated", instance_uuid=VM, request_id="x")
    for host in places:
        task = "rebuilding" if host == "h3" else None
        (second if host == "h3" else first).instance(VM, host, task_state=task, updated_at=ago(100_000))
    for host in nodes:
        cloud.sql("api", f"INSERT INTO host_mappings (host, cell_id) VALUES ('{host}', {2 if host == 'h3' else 1})")
    cloud.sql("api", f"INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES ('{VM}', 2)")
    cloud.keep()


def _elsewhere(cloud: SmallCloud, host: str, address: str, taken: bool, random: Random) -> None:
    """Let Placement and the facts of a host have a device; Placement sometimes has an allocation more or less."""
    allocated = taken != (random.random() < 0.3)
    cloud.placement.devices.append(_provider(host, address, {VM: 1} if allocated else {}))
    _present(cloud, host, address, GPU)


def _provider(host: str, address: str, held: Mapping[str, int]) -> Provider:
    name = f"{host}_{address}"
    return Provider(uuid=f"gpu-{name}", name=name, root=f"node-{host}", address=address, held=held)


def _present(cloud: SmallCloud, host: str, address: str, device: Present) -> None:
    present = {**(cloud.hardware[host].present if host in cloud.hardware else {}), address: device}
    cloud.hardware[host] = Hardware(present=present, offered=frozenset(present), read_at=ago(60))


def _host(cell: CellFile, name: str, power: str, *, idle: bool) -> int:
    node = cell.host(name, seen=5 if power == "up" else 864_000, deleted=power == "deleted")
    with cell.engine.begin() as connection:
        nodes, services = tables.compute_nodes, tables.services
        written = ago(20 if power == "up" and not idle else 864_000)
        connection.execute(nodes.update().where(nodes.c.id == node).values(updated_at=written))
        number = sa.select(services.c.id).where(services.c.host == name).scalar_subquery()
        connection.execute(nodes.update().where(nodes.c.id == node).values(service_id=number))
        if power == "gone":
            connection.execute(services.delete().where(services.c.host == name))
        else:
            connection.execute(services.update().where(services.c.host == name).values(uuid=f"service-{name}"))
    return node


def _pools(cell: CellFile) -> None:
    """Let the pools of each compute node have its free devices, as nova-compute writes them."""
    rows, nodes = tables.pci_devices.c, tables.compute_nodes
    free = sa.select(sa.func.count()).where(rows.status == "available", rows.deleted == 0)
    with cell.engine.begin() as connection:
        for node in connection.scalars(sa.select(nodes.c.id)).all():
            pool: dict[str, object] = {"vendor_id": "10de", "product_id": "11b4", "tags": {"dev_type": "type-PCI"}}
            pool["count"] = connection.execute(free.where(rows.compute_node_id == node)).scalar_one()
            objects = [{"nova_object.data": pool}] if pool["count"] else []
            stats = json.dumps({"nova_object.data": {"objects": objects}})
            connection.execute(nodes.update().where(nodes.c.id == node).values(pci_stats=stats))


def honest(cloud: SmallCloud) -> Callable[[str], Usage]:
    """Complete answers of hosts that have the devices of their rows and use none."""
    ask = answering(Sources.from_nova_conf([cloud.conf]))
    known = {host: ask(host) for host in ("h1", "h2", "h3")}
    return lambda host: known[host.lower().partition(".")[0]]  # a record may have the name in upper case, or in full


def clock(cloud: SmallCloud, wrong: timedelta) -> None:
    cloud.moment = wrong


Falsify = Callable[[SmallCloud], None]
_UNKNOWN = 99
_TWO_HOURS = timedelta(hours=2)


def _sql(database: str, *statements: str) -> Falsify:
    def falsify(cloud: SmallCloud) -> None:
        for statement in statements:
            times = {"now": cloud.began, "old": cloud.began - timedelta(days=10), "ahead": cloud.began + _TWO_HOURS}
            cloud.sql(database, statement.format(files=cloud.directory, **times))

    return falsify


def _mapped(cell: str) -> Falsify:
    return _sql(
        "api",
        "DELETE FROM instance_mappings",
        f"INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES ('{VM}', {cell})",
    )


def _placement(**change: Any) -> Falsify:
    def falsify(cloud: SmallCloud) -> None:
        cloud.placement.devices = [replace(device, **change) for device in cloud.placement.devices]

    return falsify


def _without(number: int | None) -> Falsify:
    """Let Placement omit devices: all but one, or all."""

    def falsify(cloud: SmallCloud) -> None:
        cloud.placement.devices = cloud.placement.devices[:number] if number else []

    return falsify


def _lost(cloud: SmallCloud) -> None:
    cloud.placement.lost = True


def _hardware(**change: Any) -> Falsify:
    def falsify(cloud: SmallCloud) -> None:
        cloud.hardware = {host: replace(known, **change) for host, known in cloud.hardware.items()}

    return falsify


def _no_hardware(cloud: SmallCloud) -> None:
    cloud.hardware = {}


def _exchanged_hardware(cloud: SmallCloud) -> None:
    cloud.hardware = dict(zip(cloud.hardware, reversed(cloud.hardware.values()), strict=True))


_EXCHANGED = "UPDATE cell_mappings SET database_connection = 'sqlite:///{files}/cell' || (3 - id) || '.sqlite'"
_COMPUTES = "UPDATE services SET {} WHERE \"binary\" = 'nova-compute'"

FALSIFIED: Mapping[str, tuple[Falsify, ...]] = {
    "instance_mappings.instance_uuid": (_sql("api", "DELETE FROM instance_mappings"),),
    "instance_mappings.cell_id": tuple(map(_mapped, ("1", "2", "NULL", str(_UNKNOWN)))),
    "host_mappings.host": (
        _sql("api", "DELETE FROM host_mappings"),
        _sql("api", "UPDATE host_mappings SET host = upper(host)"),
        _sql("api", "UPDATE host_mappings SET host = 'h1' WHERE host = 'h3'"),
    ),
    "host_mappings.cell_id": (
        _sql("api", "UPDATE host_mappings SET cell_id = 2 WHERE host = 'h1'"),
        _sql("api", "UPDATE host_mappings SET cell_id = 1 WHERE host = 'h3'"),
        _sql("api", f"UPDATE host_mappings SET cell_id = {_UNKNOWN}"),
    ),
    "cell_mappings.id": (_sql("api", "DELETE FROM cell_mappings WHERE id = 2"),),
    "cell_mappings.uuid": (_sql("api", "UPDATE cell_mappings SET uuid = 'other' WHERE id = 2"),),
    "cell_mappings.name": (_sql("api", "UPDATE cell_mappings SET name = 'cell1'"),),
    "cell_mappings.disabled": (_sql("api", "UPDATE cell_mappings SET disabled = 1"),),
    "cell_mappings.database_connection": (
        _sql("api", _EXCHANGED),
        _sql("api", "UPDATE cell_mappings SET database_connection = 'sqlite:////nowhere' WHERE id = 2"),
        _sql("api", "UPDATE cell_mappings SET database_connection = 'sqlite:///{files}/cell1.sqlite'"),
        _sql("api", "UPDATE cell_mappings SET database_connection = 'sqlite:///{files}/cell2.sqlite' WHERE id = 1"),
    ),
    "services.last_seen_up": tuple(
        _sql("cell1", _COMPUTES.format(f"last_seen_up = {value}"))
        for value in ("'{old}'", "'{now}'", "'{ahead}'", "NULL", "'damaged'")
    ),
    "services.created_at": (
        _sql("cell1", _COMPUTES.format("created_at = NULL")),
        _sql("cell1", _COMPUTES.format("created_at = '{now}'")),
    ),
    "services.clock": (_sql("cell1", _COMPUTES.format("last_seen_up = '{ahead}', updated_at = '{ahead}'")),),
    "services.updated_at": tuple(
        _sql("cell1", _COMPUTES.format(f"updated_at = {value}"))
        for value in ("'{old}'", "'{now}'", "'{ahead}'", "NULL", "'damaged'")
    ),
    "services.report_count": tuple(_sql("cell1", _COMPUTES.format(f"report_count = {n}")) for n in (0, 1, 10**9)),
    "services.forced_down": (_sql("cell1", _COMPUTES.format("forced_down = 1")),),
    "services.disabled": (_sql("cell1", _COMPUTES.format("disabled = 1")),),
    "services.deleted": (_sql("cell1", _COMPUTES.format("deleted = id")),),
    "services.deleted_at": (_sql("cell1", _COMPUTES.format("deleted_at = '{now}'")),),
    "services.uuid": (
        _sql("cell1", _COMPUTES.format("uuid = NULL")),
        _sql("cell2", _COMPUTES.format("uuid = 'service-h1'")),
    ),
    "services.host": (
        _sql("cell1", _COMPUTES.format("host = upper(host)")),
        _sql("cell1", _COMPUTES.format("host = host || '.example.org'")),
        _sql("cell1", "UPDATE services SET host = 'h2' WHERE host = 'h1'"),
    ),
    "services.binary": (_sql("cell1", "UPDATE services SET \"binary\" = 'nova-conductor' WHERE host = 'h1'"),),
    "services.id": (_sql("cell1", "UPDATE services SET id = id + 5000"),),
    "services.conductor": (
        _sql("cell1", "UPDATE services SET last_seen_up = '{old}' WHERE \"binary\" = 'nova-conductor'"),
        _sql("cell1", "UPDATE services SET last_seen_up = '{ahead}' WHERE \"binary\" = 'nova-conductor'"),
        _sql("cell1", "DELETE FROM services WHERE \"binary\" = 'nova-conductor'"),
    ),
    "instances.host": (
        _sql("cell1", "UPDATE instances SET host = upper(host)"),
        _sql("cell1", "UPDATE instances SET host = host || '.example.org'"),
    ),
    "instances.node": (_sql("cell1", "UPDATE instances SET node = node || '.example.org'"),),
    "migrations.source_compute": (_sql("cell1", "UPDATE migrations SET source_compute = upper(source_compute)"),),
    "migrations.dest_compute": (_sql("cell1", "UPDATE migrations SET dest_compute = upper(dest_compute)"),),
    "Provider.uuid": (_lost, _without(None), _without(1)),
    "Provider.name": (_placement(name="other_0000:ff:00.0"),),
    "Provider.root": (_placement(root="node-h9"),),
    "Provider.address": (_placement(address="0000:ff:00.0"), _placement(address="")),
    "Provider.mediated": (_placement(mediated=True),),
    "Provider.held": (_placement(held={}),),
    "Provider.unread": (_placement(unread="HTTP 500", held={}),),
    "Hardware.present": (_no_hardware, _exchanged_hardware, _hardware(present={})),
    "Hardware.offered": (_hardware(offered=None), _hardware(offered=frozenset())),
    "Hardware.unused": (_hardware(unused=("aa618089-8b16-4d01-a136-25a0f3c73123",)),),
    "Hardware.gone": (_hardware(gone={VM: ("aa618089-8b16-4d01-a136-25a0f3c73123",)}),),
    "Hardware.read_at": (_hardware(read_at=None), _hardware(read_at=ago(10**7), present={})),
    "Clock.now": tuple(partial(clock, wrong=timedelta(hours=hours)) for hours in (-30, -1, -0.1, 0.1, 1, 30)),
}
"""The falsifications of each piece of evidence that can be wrong by itself."""

PRIMARY: Mapping[str, str] = {
    "pci_devices": "what is judged; the host's answer is the second evidence",
    "compute_nodes": "the second evidence is the service's report, and for a deleted one the host's answer",
    "instances": "the place and state of the instance; the host's answer is the second evidence",
    "instance_extra": "what the instance requests; the host's answer is the second evidence",
    "migrations": "work under way; the answers of both hosts are the second evidence",
    "alembic_version": "an unknown schema is not read at all",
}
"""Tables whose rows are primary records, with the second evidence (safety.md names it for each repair)."""


def answers(host_answers: Callable[[str], Usage]) -> Iterator[tuple[str, Callable[[str], Usage]]]:
    """Yield, for each field of :class:`Usage`, an answer in which it is wrong or missing."""
    changes: Mapping[str, Mapping[str, object]] = {
        "gap": {"gap": "no route to host", "functions": {}},
        "functions": {"functions": {}},
        "names": {"names": frozenset({"somebody-else"})},
        "nova_compute": {"nova_compute": True},
        "age": {"age": timedelta(days=900)},
    }
    for name, change in changes.items():
        yield name, partial(_changed, host_answers, change)


def _changed(host_answers: Callable[[str], Usage], change: Mapping[str, Any], host: str) -> Usage:
    return replace(host_answers(host), **change)


DECLARED = {
    "Usage.users": "the record of libvirt and of the kernel, read separately; in use is believed in every answer",
    "Usage.gone": "the operator's declaration (--gone); a host that reports contradicts it",
    "Clock.grace": "the operator's choice (--grace)",
    "Clock.stuck_after": "the operator's choice (--stuck-after)",
    "Clock.stopped": "the operator's declaration (--stopped); the reports and the host's processes contradict it",
    "Clock.unblock": "the operator's choice (--unblock)",
    "Clock.out_of_service": "the operator's choice in the spec; forbids only",
}
"""Evidence that is the operator's word, or that two sources give, with the reason."""
DERIVED = {"Clock.heard": "services.conductor", "Clock.doubt": "services.conductor"}
"""Fields that are computed from a piece of evidence above."""


def set_clock(cloud: SmallCloud) -> Callable[[sa.Connection], datetime]:
    """A replacement of :func:`gpustack.novadb.read.now` that stands still, and is wrong by ``cloud.moment``."""
    return lambda connection: cloud.began + cloud.moment

"""Small cells in databases: the part of Nova's tables that clean-up reads, with rows from a test's short notation.

Times are ages in seconds; the default is one hour.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.sources import CELL0, Sources
from gpustack.repair.hypervisor import Usage

HEAD, API_HEAD = "2903cd72dc14", "cdeec0c85668"
CELL1 = "11111111-1111-1111-1111-111111111111"
CONDUCTOR = 999_999
CELL_TABLES = ("pci_devices", "compute_nodes", "services", "instances", "instance_extra", "migrations")


def answering(sources: Sources, users: Mapping[str, frozenset[str]] | None = None) -> Callable[[str], Usage]:
    """A stand-in for all hosts: each has the devices of its rows, and its answer is complete.

    :param users: the devices in use, on every host.
    """
    query = sa.text(
        "SELECT p.address, p.vendor_id, p.product_id FROM pci_devices p JOIN compute_nodes c "
        "ON c.id = p.compute_node_id WHERE c.host = :host"
    )

    def ask(host: str) -> Usage:
        functions = {}
        for cell in sources.cells:
            if cell.uuid != CELL0:
                with sa.create_engine(cell.database.url, poolclass=sa.NullPool).connect() as connection:
                    for address, vendor, product in connection.execute(query, {"host": host}):
                        functions[address.lower()] = f"{vendor}:{product}"
        return Usage(users=users or {}, functions=functions)

    return ask


def silent(host: str) -> Usage:
    """A stand-in for hosts that do not answer."""
    return Usage(gap=f"{host} did not answer")


def ago(seconds: float = 3600) -> datetime:
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0) - timedelta(seconds=seconds)


def create(engine: sa.Engine) -> None:
    """Create an empty cell."""
    tables.metadata.create_all(engine, [tables.metadata.tables[name] for name in CELL_TABLES])
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{HEAD}')")


@dataclass
class CellFile:
    """A cell with methods to insert rows. Its nova-conductor reports 45 seconds ahead: a slow test has time."""

    url: str
    engine: sa.Engine = field(init=False)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        create(self.engine)
        row = {"id": CONDUCTOR, "host": "controller", "binary": "nova-conductor", "deleted": 0}
        with self.engine.begin() as connection:
            connection.execute(tables.services.insert(), {**row, "last_seen_up": ago(-45)})

    def conductor(self, seen: float) -> None:
        """Let the nova-conductor have reported so long ago."""
        with self.engine.begin() as connection:
            services = tables.services
            connection.execute(services.update().where(services.c.id == CONDUCTOR).values(last_seen_up=ago(seen)))

    def insert(self, table: str, **values: object) -> int:
        """Insert a row; return its id."""
        number = next(self._ids)
        row = {"id": number, "deleted": 0, "created_at": ago(90000), "updated_at": ago(), **values}
        with self.engine.begin() as connection:
            connection.execute(tables.metadata.tables[table].insert(), row)
        return number

    def host(self, name: str, *, seen: float = 864000, deleted: bool = False) -> int:
        """Insert a compute node with its service; return the node's id.

        :param seen: the age of the service's last report in seconds.
        """
        if not deleted:
            last = ago(seen)
            reported = {"last_seen_up": last, "updated_at": last}
            self.insert("services", host=name, binary="nova-compute", disabled=False, forced_down=False, **reported)
        number = next(self._ids)
        stamps = {"deleted": number, "deleted_at": ago(7200)} if deleted else {}
        with self.engine.begin() as connection:
            connection.execute(
                tables.compute_nodes.insert(),
                {
                    "id": number,
                    "uuid": f"node-{name}",
                    "host": name,
                    "hypervisor_hostname": name,
                    "updated_at": ago(),
                    "deleted": 0,
                    **stamps,
                },
            )
        return number

    def device(self, node: int, address: str, status: str = "available", **values: object) -> int:
        """Insert a row of pci_devices; return its id."""
        row = {"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI", "label": "label_10de_11b4", **values}
        return self.insert("pci_devices", compute_node_id=node, address=address, status=status, **row)

    def instance(self, uuid: str, host: str | None, *, wants: tuple[str, ...] = ("r1",), **values: object) -> str:
        """Insert an instance that requests devices."""
        requests = [{"count": 1, "alias_name": "k4200", "request_id": request, "spec": []} for request in wants]
        row = {"host": host, "node": host, "vm_state": "active", **values}
        self.insert("instances", uuid=uuid, **row)
        self.insert("instance_extra", instance_uuid=uuid, pci_requests=json.dumps(requests))
        return uuid

    def move(self, uuid: str, source: str, destination: str, status: str, **values: object) -> int:
        """Insert a migration."""
        ends = {"source_compute": source, "source_node": source, "dest_compute": destination, "dest_node": destination}
        return self.insert(
            "migrations", instance_uuid=uuid, status=status, migration_type="migration", **ends, **values
        )

    def dump(self) -> dict[str, list[tuple[object, ...]]]:
        """All rows of the cell."""
        with self.engine.connect() as connection:
            return {
                name: [tuple(row) for row in connection.execute(sa.select(table).order_by(table.c.id))]
                for name in CELL_TABLES
                for table in (tables.metadata.tables[name],)
            }


def nova_conf(directory: Path, cells: dict[str, str], *, service_down_time: int | None = None) -> Path:
    """Create an API database whose mappings name cells by URL, and a nova.conf for it.

    :param service_down_time: seconds; more than Nova's 60 leave a slow test time before its hosts are down.
    """
    engine = sa.create_engine(f"sqlite:///{directory}/api.sqlite", poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE alembic_version (version_num VARCHAR(32))",
            f"INSERT INTO alembic_version VALUES ('{API_HEAD}')",
            (
                "CREATE TABLE cell_mappings (id INTEGER PRIMARY KEY, uuid TEXT, name TEXT, transport_url TEXT,"
                " database_connection TEXT, disabled BOOLEAN)"
            ),
            "CREATE TABLE instance_mappings (id INTEGER PRIMARY KEY, instance_uuid TEXT, cell_id INTEGER)",
            "CREATE TABLE host_mappings (id INTEGER PRIMARY KEY, host TEXT, cell_id INTEGER)",
        ):
            connection.exec_driver_sql(statement)
        for number, (name, url) in enumerate(cells.items(), start=1):
            uuid = CELL1 if number == 1 else f"{number:08d}-0000-0000-0000-000000000000"
            connection.execute(
                sa.text("INSERT INTO cell_mappings VALUES (:id, :uuid, :name, 'none:///', :url, 0)"),
                {"id": number, "uuid": uuid, "name": name, "url": url},
            )
    path = directory / "nova.conf"
    options = "" if service_down_time is None else f"[DEFAULT]\nservice_down_time = {service_down_time}\n"
    path.write_text(f"{options}[api_database]\nconnection = sqlite:///{directory}/api.sqlite\n")
    return path


def silence(cell: CellFile, minutes: int = 3) -> None:
    """Let the reports of all services be so much older, as after so long a pause of this machine."""
    services = tables.services
    with cell.engine.begin() as connection:
        for row in connection.execute(sa.select(services.c.id, services.c.last_seen_up)).all():
            last = row.last_seen_up - timedelta(minutes=minutes)
            connection.execute(services.update().where(services.c.id == row.id).values(last_seen_up=last))


def fill(cell: CellFile) -> None:
    """Insert a leak of each class that is repaired in the database, on hosts that are down, deleted, stopped, or up."""
    old, orphan, up, stopped = (
        cell.host("old"),
        cell.host("orphan", deleted=True),
        cell.host("up", seen=1),
        cell.host("stopped"),
    )
    for uuid in ("vm-a", "vm-b", "vm-bd", "vm-c", "vm-d", "vm-v", "vm-g"):
        cell.instance(uuid, "new")
    cell.instance("vm-f", "stopped")
    cell.device(old, "0000:01:00.0", "allocated", instance_uuid="vm-a", request_id="x")
    cell.device(up, "0000:01:00.0", "allocated", instance_uuid="vm-b", request_id="x")
    cell.move("vm-b", "up", "new", "error")
    cell.device(old, "0000:02:00.0", "allocated", instance_uuid="vm-bd", request_id="x")
    cell.move("vm-bd", "old", "new", "error")
    cell.device(orphan, "0000:01:00.0", "allocated", instance_uuid="vm-c", request_id="x")
    deleted = cell.device(old, "0000:03:00.0", "allocated", instance_uuid="vm-d", request_id="x")
    with cell.engine.begin() as connection:
        devices = tables.pci_devices
        connection.execute(devices.update().where(devices.c.id == deleted).values(deleted=deleted, deleted_at=ago()))
    cell.device(old, "0000:04:00.0", "allocated", instance_uuid="gone", request_id="x")
    cell.device(old, "0000:05:00.0", "unavailable", dev_type="type-PF")
    virtual = {"dev_type": "type-VF", "parent_addr": "0000:05:00.0"}
    cell.device(old, "0000:05:00.1", "allocated", instance_uuid="vm-v", request_id="x", **virtual)
    cell.device(old, "0000:06:00.0", "claimed", instance_uuid="vm-g", request_id="x")
    cell.device(stopped, "0000:01:00.0", "allocated", instance_uuid="vm-f", request_id="r1")
    cell.device(stopped, "0000:06:00.0", "claimed", instance_uuid="vm-f", request_id="x")
    cell.device(stopped, "0000:02:00.0", "allocated", instance_uuid="vm-f", request_id="x")
    cell.device(stopped, "0000:03:00.0", "unavailable")
    cell.device(stopped, "0000:04:00.0", "available", instance_uuid="vm-f")
    cell.device(stopped, "0000:05:00.0", "available", dev_type="type-PF")
    cell.device(
        stopped,
        "0000:05:00.1",
        "allocated",
        dev_type="type-VF",
        parent_addr="0000:05:00.0",
        instance_uuid="vm-i",
        request_id="r1",
    )
    cell.instance("vm-i", "stopped")

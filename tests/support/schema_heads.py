"""The schemas of Nova's releases, dumped from real databases (``schemas/*.yaml``), and a cell with leaks in each."""

from __future__ import annotations

import functools
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml

from gpustack.changes.change import ChangeResult
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Repair
from support.cellfile import CELL1, ago
from support.cleanup_runs import run, undone

SCHEMAS = Path(__file__).parents[1] / "unit" / "novadb" / "schemas"
WITHOUT_REQUEST_IDS = (
    *("ocata", "pike", "queens", "rocky", "stein", "train", "ussuri", "victoria", "wallaby", "xena", "yoga"),
)


_DOWN = timedelta(hours=1)
"""``service_down_time``: a slow server has time until the hosts that reported before are down."""


@functools.cache
def schemas(dialect: str) -> dict[str, Any]:
    """The content of a dialect's file."""
    document: dict[str, Any] = yaml.load((SCHEMAS / f"{dialect}.yaml").read_text(), Loader=yaml.CSafeLoader)
    return document


def distinct(dialect: str) -> tuple[str, ...]:
    """The last release with each set of tables, oldest first."""
    documents = schemas(dialect).values()
    tables = [versions for document in documents for versions in document["tables"].values()]
    last = {
        tuple(next((v["ddl"] for v in versions if release in v["releases"]), "") for versions in tables): release
        for release in schemas(dialect)["cell"]["heads"]
    }
    return tuple(last.values())


def create(url: sa.URL, dialect: str, kind: str, release: str) -> sa.Engine:
    """Create the tables of a release, as its own migrations do, in an empty database."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    content = schemas(dialect)[kind]
    with engine.begin() as connection:
        for versions in content["tables"].values():
            ddl = next((version["ddl"] for version in versions if release in version["releases"]), "")
            for statement in filter(None, map(str.strip, ddl.split(";\n"))):
                connection.exec_driver_sql(statement.replace("%", "%%"))
        for table, version in content["heads"][release].items():
            column, kind_of = ("version", "INTEGER") if table == "migrate_version" else ("version_num", "VARCHAR(32)")
            connection.exec_driver_sql(f"CREATE TABLE {table} ({column} {kind_of})")
            connection.exec_driver_sql(f"INSERT INTO {table} VALUES ('{version}')")
    return engine


class Filler:
    """Inserts rows into real tables: fills NOT NULL columns, and omits columns that a release lacks."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._tables = sa.MetaData()
        self._tables.reflect(engine)

    def __call__(self, table: str, **values: object) -> None:
        definition = self._tables.tables[table]
        row = {"deleted": 0, "created_at": ago(90000), "updated_at": ago(), **values}
        for column in definition.columns:
            if not column.nullable and column.server_default is None and not column.primary_key:
                row.setdefault(column.name, _nothing(column.type))
        for column in definition.columns:
            if isinstance(column.type, sa.Boolean) and column.name in row:
                row[column.name] = bool(row[column.name])
        with self._engine.begin() as connection:
            connection.execute(definition.insert(), {name: row[name] for name in row if name in definition.columns})

    def dump(self) -> list[tuple[object, ...]]:
        """Everything that a repair may change."""
        with self._engine.connect() as connection:
            return [
                tuple(row)
                for name in ("pci_devices", "migrations")
                for row in connection.execute(sa.select(self._tables.tables[name]).order_by(sa.text("id")))
            ]


def _nothing(kind: sa.types.TypeEngine[Any]) -> object:
    if isinstance(kind, sa.Enum):
        return kind.enums[0]
    if isinstance(kind, sa.DateTime):
        return ago(90000)
    return "" if isinstance(kind, sa.String | sa.Text) else 0


def leaks(cell: Filler) -> None:
    """Insert leaks of classes A, B, C, E and F: on another host, pinned, orphaned, without owner, and surplus."""
    for number, (host, age) in enumerate((("down", 864000), ("up", 1), ("new", 1)), start=1):
        reported = {"last_seen_up": ago(age), "updated_at": ago(age)}
        cell("services", host=host, binary="nova-compute", disabled=False, forced_down=False, **reported)
        cell("compute_nodes", id=number, host=host, hypervisor_hostname=host, uuid=f"node-{number}")
    cell("compute_nodes", id=4, host="orphan", hypervisor_hostname="orphan", uuid="node-4", deleted=4, deleted_at=ago())
    requests = '[{"count": 1, "alias_name": "g", "request_id": "r1", "spec": []}]'
    for uuid in ("vm-a", "vm-b", "vm-c", "vm-f"):
        cell("instances", uuid=uuid, host="new", node="new", vm_state="active")
        cell("instance_extra", instance_uuid=uuid, pci_requests=requests)
    moved = {"source_node": "up", "dest_compute": "new", "dest_node": "new", "migration_type": "migration"}
    cell("migrations", instance_uuid="vm-b", status="error", source_compute="up", **moved)
    for node, address, owner, request in (
        (1, "0000:01:00.0", "vm-a", "x"),
        (1, "0000:02:00.0", "vm-gone", "x"),
        (2, "0000:01:00.0", "vm-b", "x"),
        (4, "0000:01:00.0", "vm-c", "x"),
        *((3, f"0000:0{slot}:00.0", f"vm-{name}", "r1") for slot, name in enumerate("abcf", start=1)),
        (3, "0000:05:00.0", "vm-f", "x"),
    ):
        device = {"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI", "label": "l"}
        owned = {"status": "allocated", "instance_uuid": owner, "request_id": request}
        cell("pci_devices", compute_node_id=node, address=address, **device, **owned)


def check(dialect: str, release: str, api: sa.URL, cell: sa.URL, directory: Path) -> None:
    """Leaks are found, repaired, and restored to identical rows."""
    mapping = create(api, dialect, "api", release)
    with mapping.begin() as connection:
        table = sa.Table("cell_mappings", sa.MetaData(), autoload_with=connection)
        row = {"uuid": CELL1, "name": "cell1", "transport_url": "none:///", "disabled": False}
        row["database_connection"] = cell.render_as_string(hide_password=False)
        connection.execute(table.insert(), {name: row[name] for name in row if name in table.columns})
    filler = Filler(create(cell, dialect, "cell", release))
    leaks(filler)
    url = api.render_as_string(hide_password=False).replace("%", "%%")
    (directory / "nova.conf").write_text(
        f"[DEFAULT]\nservice_down_time = {_DOWN.total_seconds():.0f}\n[api_database]\nconnection = {url}\n"
    )
    before = filler.dump()
    sources, selection = Sources.from_nova_conf([directory / "nova.conf"]), Selection(service_down_time=_DOWN)

    cleanup_plan = plan.make(sources, selection)

    assert not cleanup_plan.unread
    surplus = "F report None" if release in WITHOUT_REQUEST_IDS else "F stale free"
    # These nodes have no pools, which class P reports.
    verdicts = sorted(f"{v.klass} {v.status} {v.repair}" for v in cleanup_plan.verdicts if v.klass != "P")
    assert verdicts == sorted(["A stale free", "B stale fail-migration", "C stale retire", "E stale free", surplus]), (
        verdicts
    )
    repairs = [v.to_dict() for v in cleanup_plan.repairs if v.klass in "ABCE"]
    outcomes = run(sources, directory / "journal", repairs, selection=selection)
    assert {o.result for o in outcomes} == {ChangeResult.DONE}, outcomes
    assert not [
        v for v in plan.make(sources, selection).repairs if v.repair in (Repair.FREE, Repair.RETIRE) and not v.stop
    ]
    assert filler.dump() != before
    list(undone(directory / "journal", sources))
    assert filler.dump() == before

"""The tables and columns of a cell database and of the API database that gpustack reads.

Columns as in ``nova/db/main/models.py`` and ``nova/db/api/models.py``. Some are recent (``pci_devices.uuid``: Pike,
``migrations.cross_cell_move``: Train). :func:`columns` omits columns that the database lacks, and the reader uses None
for them.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpustack.novadb.model import DAMAGE, UNREADABLE

metadata = sa.MetaData()


class Moment(sa.types.TypeDecorator[datetime]):
    """A time column whose unreadable values do not fail the statement."""

    impl = sa.DateTime
    cache_ok = True

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        """Convert a value to a naive ``datetime``, or to :data:`UNREADABLE`.

        PyMySQL returns an impossible time as text. SQLite stores times as text, and its conversion can raise.
        """
        convert = self.impl_instance.dialect_impl(dialect).result_processor(dialect, coltype)

        def process(value: Any) -> datetime | None:  # noqa: ANN401 - whatever the driver returns
            if convert is not None:
                try:
                    value = convert(value)
                except DAMAGE:
                    return UNREADABLE
            if value is None or (value.__class__ is datetime and value.tzinfo is None):
                moment: datetime | None = value
                return moment
            return UNREADABLE

        return process


def _columns(kind: Any, *names: str) -> list[sa.Column[object]]:  # noqa: ANN401 - a type of SQLAlchemy
    return [sa.Column(name, kind) for name in names]


def _soft_deleted(name: str, *columns: sa.Column[object]) -> sa.Table:
    """A table with an id, Nova's time stamps, and soft deletion (``deleted`` is 0, or the row's own id)."""
    key = sa.Column("id", sa.Integer, primary_key=True)
    stamps = _columns(Moment, "created_at", "updated_at", "deleted_at")
    return sa.Table(name, metadata, key, *columns, *stamps, sa.Column("deleted", sa.Integer))


pci_devices = _soft_deleted(
    "pci_devices",
    *_columns(sa.Integer, "compute_node_id", "numa_node"),
    *_columns(sa.String(12), "address", "parent_addr"),
    *_columns(sa.String(4), "vendor_id", "product_id"),
    *_columns(sa.String(8), "dev_type"),
    *_columns(sa.String(36), "uuid", "status", "request_id", "instance_uuid"),
    *_columns(sa.String(255), "dev_id", "label"),
    *_columns(sa.Text, "extra_info"),
)

compute_nodes = _soft_deleted(
    "compute_nodes",
    *_columns(sa.String(36), "uuid"),
    *_columns(sa.String(255), "host", "hypervisor_hostname"),
    *_columns(sa.Integer, "service_id"),
    *_columns(sa.Text, "pci_stats", "numa_topology"),
    *_columns(sa.Float, "cpu_allocation_ratio", "ram_allocation_ratio"),
)

services = _soft_deleted(
    "services",
    *_columns(sa.String(36), "uuid"),
    *_columns(sa.String(255), "host", "binary"),
    *_columns(sa.Boolean, "disabled", "forced_down"),
    *_columns(Moment, "last_seen_up"),
    *_columns(sa.Integer, "report_count"),
)

instances = _soft_deleted(
    "instances",
    *_columns(sa.String(36), "uuid"),
    *_columns(sa.String(255), "host", "node", "vm_state", "task_state", "display_name", "project_id", "user_id"),
    *_columns(Moment, "launched_at"),
    *_columns(sa.Integer, "cleaned"),
    *_columns(sa.Boolean, "hidden"),
)

instance_extra = _soft_deleted(
    "instance_extra",
    *_columns(sa.String(36), "instance_uuid"),
    *_columns(sa.Text, "pci_requests", "flavor", "migration_context"),
)

migrations = _soft_deleted(
    "migrations",
    *_columns(sa.String(36), "uuid", "instance_uuid"),
    *_columns(sa.String(255), "source_compute", "source_node", "dest_compute", "dest_node", "status"),
    *_columns(sa.String(16), "migration_type"),
    *_columns(sa.Boolean, "cross_cell_move"),
)

instance_mappings = sa.Table(
    "instance_mappings", metadata, *_columns(sa.String(36), "instance_uuid"), *_columns(sa.Integer, "cell_id")
)

host_mappings = sa.Table("host_mappings", metadata, *_columns(sa.String(255), "host"), *_columns(sa.Integer, "cell_id"))

cell_mappings = sa.Table(
    "cell_mappings",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    *_columns(sa.String(36), "uuid"),
    *_columns(sa.String(255), "name"),
)


def columns(connection: sa.Connection, table: sa.Table) -> tuple[sa.Column[object], ...]:
    """Return the columns of a table that exist in the database; cached for the connection."""
    key = ("gpustack columns", table.name)
    existing: tuple[sa.Column[object], ...] | None = connection.info.get(key)
    if existing is None:
        present = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        existing = connection.info[key] = tuple(column for column in table.columns if column.name in present)
    return existing

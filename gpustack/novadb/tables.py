"""The tables and columns of a cell database and of the API database that gpustack reads.

Columns as in ``nova/db/main/models.py`` and ``nova/db/api/models.py``. Some are recent (``pci_devices.uuid``: Pike,
``migrations.cross_cell_move``: Train). :func:`columns` omits columns that the database lacks, and the reader uses None
for them.
"""

import sqlalchemy as sa

from gpustack.novadb.values import Moment

metadata = sa.MetaData()


def _soft_deleted(name: str, *columns: sa.Column[object]) -> sa.Table:
    """A table with Nova's time stamps and soft deletion (``deleted`` is 0, or the row's own id)."""
    stamps = (sa.Column("created_at", Moment), sa.Column("updated_at", Moment))
    return sa.Table(
        name, metadata, *columns, *stamps, sa.Column("deleted_at", Moment), sa.Column("deleted", sa.Integer)
    )


pci_devices = _soft_deleted(
    "pci_devices",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("compute_node_id", sa.Integer),
    sa.Column("address", sa.String(12)),
    sa.Column("vendor_id", sa.String(4)),
    sa.Column("product_id", sa.String(4)),
    sa.Column("dev_type", sa.String(8)),
    sa.Column("dev_id", sa.String(255)),
    sa.Column("label", sa.String(255)),
    sa.Column("status", sa.String(36)),
    sa.Column("request_id", sa.String(36)),
    sa.Column("extra_info", sa.Text),
    sa.Column("instance_uuid", sa.String(36)),
    sa.Column("numa_node", sa.Integer),
    sa.Column("parent_addr", sa.String(12)),
)

compute_nodes = _soft_deleted(
    "compute_nodes",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("host", sa.String(255)),
    sa.Column("hypervisor_hostname", sa.String(255)),
    sa.Column("service_id", sa.Integer),
    sa.Column("pci_stats", sa.Text),
    sa.Column("numa_topology", sa.Text),
    sa.Column("cpu_allocation_ratio", sa.Float),
    sa.Column("ram_allocation_ratio", sa.Float),
)

services = _soft_deleted(
    "services",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("host", sa.String(255)),
    sa.Column("binary", sa.String(255)),
    sa.Column("disabled", sa.Boolean),
    sa.Column("forced_down", sa.Boolean),
    sa.Column("last_seen_up", Moment),
    sa.Column("report_count", sa.Integer),
)

instances = _soft_deleted(
    "instances",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("host", sa.String(255)),
    sa.Column("node", sa.String(255)),
    sa.Column("vm_state", sa.String(255)),
    sa.Column("task_state", sa.String(255)),
    sa.Column("display_name", sa.String(255)),
    sa.Column("project_id", sa.String(255)),
    sa.Column("user_id", sa.String(255)),
    sa.Column("launched_at", Moment),
    sa.Column("cleaned", sa.Integer),
    sa.Column("hidden", sa.Boolean),
)

instance_extra = _soft_deleted(
    "instance_extra",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36)),
    sa.Column("pci_requests", sa.Text),
    sa.Column("flavor", sa.Text),
    sa.Column("migration_context", sa.Text),
)

migrations = _soft_deleted(
    "migrations",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("instance_uuid", sa.String(36)),
    sa.Column("source_compute", sa.String(255)),
    sa.Column("source_node", sa.String(255)),
    sa.Column("dest_compute", sa.String(255)),
    sa.Column("dest_node", sa.String(255)),
    sa.Column("status", sa.String(255)),
    sa.Column("migration_type", sa.String(16)),
    sa.Column("cross_cell_move", sa.Boolean),
)

instance_mappings = sa.Table(
    "instance_mappings",
    metadata,
    sa.Column("instance_uuid", sa.String(36)),
    sa.Column("cell_id", sa.Integer),
)

host_mappings = sa.Table(
    "host_mappings",
    metadata,
    sa.Column("host", sa.String(255)),
    sa.Column("cell_id", sa.Integer),
)

cell_mappings = sa.Table(
    "cell_mappings",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("name", sa.String(255)),
)


def columns(connection: sa.Connection, table: sa.Table) -> tuple[sa.Column[object], ...]:
    """Return the columns of a table that exist in the database; cached for the connection."""
    key = ("gpustack columns", table.name)
    existing: tuple[sa.Column[object], ...] | None = connection.info.get(key)
    if existing is None:
        present = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        existing = connection.info[key] = tuple(column for column in table.columns if column.name in present)
    return existing

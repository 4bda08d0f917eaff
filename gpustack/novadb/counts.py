"""Count the rows of compute nodes by their values: enough to recognize a healthy one, without its rows.

A compute node with 100 available devices is one record here.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa

from gpustack.novadb import tables

_GUESTS, _EXTRA = tables.instances.c, tables.instance_extra.c
_OF_GUEST = (_EXTRA.instance_uuid == _GUESTS.uuid) & (_EXTRA.deleted == 0)
INSTANCES = tables.instances.join(tables.instance_extra, _OF_GUEST, isouter=True)
"""Instances with their PCI requests."""
RESIDENTS = tables.compute_nodes.join(
    tables.instances,
    (_GUESTS.host == tables.compute_nodes.c.host)
    & (_GUESTS.node == tables.compute_nodes.c.hypervisor_hostname)
    & (_GUESTS.deleted == 0),
).join(tables.instance_extra, _OF_GUEST, isouter=True)
"""Compute nodes with the live instances that are placed there, and the PCI requests of these. The joins use indexes."""
READ = sa.or_(tables.pci_devices.c.deleted == 0, tables.pci_devices.c.instance_uuid.is_not(None))
"""Live rows, and soft-deleted rows that still name an owner."""
UNCLEAR = "unclear"


class CountedRows(NamedTuple):
    """Rows of ``pci_devices`` that do not differ in these columns."""

    compute_node_id: int
    vendor_id: str
    product_id: str
    dev_type: str
    status: str
    instance_uuid: str | None
    request_id: str | None
    parent_addr: str | None
    deleted: int | None
    number: int

    @property
    def live(self) -> bool:
        """Whether ``deleted`` is 0."""
        return self.deleted == 0


@dataclass(kw_only=True)
class NodeCounts:
    """A live compute node.

    :ivar rows: its live rows, and soft-deleted rows that still name an owner, counted.
    :ivar residents: the text of the PCI requests of each live instance that is placed on its host and node;
        :data:`UNCLEAR` for one that has none, or two, or is placed there by names of other case.
    """

    id: int
    host: str | None
    hypervisor_hostname: str | None
    pci_stats: str | None
    rows: list[CountedRows] = field(default_factory=list)
    residents: dict[str, str | None] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """The number of live rows."""
        return sum(row.number for row in self.rows if row.live)


def count_nodes(connection: sa.Connection, ids: Collection[int]) -> Iterator[NodeCounts]:
    """Yield the live compute nodes among ``ids``."""
    nodes, guests, extra = tables.compute_nodes.c, tables.instances.c, tables.instance_extra.c
    query = sa.select(nodes.id, nodes.host, nodes.hypervisor_hostname, nodes.pci_stats)
    counted = {
        row.id: NodeCounts(**row._mapping)
        for row in connection.execute(query.where(nodes.id.in_(ids), nodes.deleted == 0))
    }
    for values in connection.execute(_rows(connection, ids)).all():
        if node := counted.get(values[0]):
            node.rows.append(CountedRows._make(values))
    requests = sa.select(nodes.id, guests.host, guests.node, guests.uuid, extra.id, extra.pci_requests)
    for number, host, name, uuid, extra_id, text in connection.execute(
        requests.select_from(RESIDENTS).where(nodes.id.in_(ids), nodes.deleted == 0)
    ).all():
        node = counted[number]
        same = (host, name) == (node.host, node.hypervisor_hostname)
        clear = same and extra_id is not None and node.residents.get(uuid, text) == text
        node.residents[uuid] = text if clear else UNCLEAR
    yield from counted.values()


def _rows(connection: sa.Connection, ids: Collection[int]) -> sa.Select[Any]:
    """Select the rows, grouped byte by byte: MySQL would group texts that differ in case or in trailing spaces."""
    rows = tables.pci_devices.c
    columns: list[sa.ColumnElement[Any]] = [rows[name] for name in CountedRows._fields[:-1]]
    keys: list[sa.ColumnElement[Any]] = columns
    if connection.dialect.name in ("mysql", "mariadb"):
        keys = [sa.cast(column, sa.BINARY) if isinstance(column.type, sa.String) else column for column in columns]
        columns = [
            sa.func.min(column) if key is not column else column for key, column in zip(keys, columns, strict=True)
        ]
    return sa.select(*columns, sa.func.count()).where(rows.compute_node_id.in_(ids), READ).group_by(*keys)

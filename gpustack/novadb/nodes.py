"""Select the compute nodes of a cell: those with rows of ``pci_devices``, and those that should have rows."""

from collections.abc import Collection, Iterable, Iterator

import sqlalchemy as sa

from gpustack.base.hostnames import short
from gpustack.novadb import tables
from gpustack.novadb.owners import batches, spellings


def nodes_with_rows(
    connection: sa.Connection, hosts: frozenset[str] | None, instance_uuid: str | None
) -> Iterable[int]:
    """Return ids of compute nodes with any row, including soft-deleted rows.

    :param hosts: only of these hosts; None for all.
    :param instance_uuid: only those with a row that names this instance.
    """
    rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
    query = sa.select(rows.compute_node_id).distinct()
    if hosts is not None:
        query = query.join(tables.compute_nodes, nodes.id == rows.compute_node_id).where(nodes.host.in_(sorted(hosts)))
    if instance_uuid is not None:
        query = query.where(rows.instance_uuid.in_(sorted(spellings([instance_uuid]))))
    return connection.scalars(query)


def nodes_of_guests(
    connection: sa.Connection, hosts: frozenset[str] | None, instance_uuid: str | None
) -> Iterator[int]:
    """Yield ids of live compute nodes without rows whose instances request devices; the rows were deleted by hand.

    With ``instance_uuid``: the compute node of that instance. Nodes without rows are selected first, because few of
    them have instances that request devices.
    """
    rows, nodes, guests, extra = (
        table.c for table in (tables.pci_devices, tables.compute_nodes, tables.instances, tables.instance_extra)
    )
    placed = (guests.host == nodes.host) & (guests.node == nodes.hypervisor_hostname) & (guests.deleted == 0)
    joined = tables.compute_nodes.join(tables.instances, placed)
    query = sa.select(nodes.id).where(nodes.deleted == 0)
    if hosts is not None:
        query = query.where(nodes.host.in_(sorted(hosts)))
    if instance_uuid is not None:
        named = guests.uuid.in_(sorted(spellings([instance_uuid])))
        yield from connection.scalars(query.select_from(joined).where(named))
        return
    bare = query.where(~sa.exists().where(rows.compute_node_id == nodes.id))
    asking = joined.join(tables.instance_extra, extra.instance_uuid == guests.uuid)
    for batch in batches(connection.scalars(bare).all()):
        hosting = sa.select(nodes.id).distinct().select_from(asking).where(nodes.id.in_(batch))
        yield from connection.scalars(hosting.where(extra.pci_requests.contains('"count"', autoescape=True)))


def displaced(connection: sa.Connection, limit: int) -> Iterator[str]:
    """Yield owners of rows, in lower case, that are not placed on the compute node of the row; at most ``limit``."""
    rows, nodes, guests = (table.c for table in (tables.pci_devices, tables.compute_nodes, tables.instances))
    placed = sa.exists().where(
        *(nodes.id == rows.compute_node_id, nodes.deleted == 0, rows.deleted == 0, guests.uuid == rows.instance_uuid),
        *(guests.deleted == 0, guests.host == nodes.host, guests.node == nodes.hypervisor_hostname),
    )
    query = sa.select(rows.instance_uuid).distinct().where(rows.instance_uuid.is_not(None), ~placed)
    yield from map(str.lower, connection.scalars(query.limit(limit)))


def nodes_with_uuids(connection: sa.Connection, uuids: Collection[str]) -> Iterator[int]:
    """Yield ids of live compute nodes with these uuids."""
    nodes = tables.compute_nodes.c
    for batch in batches(sorted(uuids)):
        yield from connection.scalars(sa.select(nodes.id).where(nodes.uuid.in_(batch), nodes.deleted == 0))


def nodes_called(connection: sa.Connection, names: Collection[str], hosts: frozenset[str] | None) -> Iterator[int]:
    """Yield ids of live compute nodes whose host or hypervisor may have one of these names, short or full."""
    wanted = {short(name) for name in names}
    nodes = tables.compute_nodes.c
    query = sa.select(nodes.id, nodes.host, nodes.hypervisor_hostname).where(nodes.deleted == 0)
    for row in connection.execute(query) if wanted else ():
        called = {short(name) for name in row[1:] if name}
        if called & wanted and (hosts is None or row.host in hosts):
            yield row.id


def uuids_of(connection: sa.Connection, hosts: frozenset[str]) -> list[str]:
    """Return the uuids of live compute nodes of these hosts."""
    nodes = tables.compute_nodes.c
    query = sa.select(nodes.uuid).where(nodes.deleted == 0, nodes.uuid.is_not(None), nodes.host.in_(sorted(hosts)))
    return list(connection.scalars(query))


def numa_nodes(connection: sa.Connection) -> dict[int, int]:
    """Return the NUMA node of each live row of ``pci_devices`` that has one, by the row's id."""
    table = tables.pci_devices.c
    query = sa.select(table.id, table.numa_node).where(table.deleted == 0, table.numa_node.is_not(None))
    return {number: node for number, node in connection.execute(query) if isinstance(node, int)}


def hosts_with_rows(connection: sa.Connection, hosts: frozenset[str] | None) -> set[str]:
    """Return the hosts of live compute nodes with live rows.

    :param hosts: only these hosts; None for all.
    """
    rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
    joined = tables.compute_nodes.join(tables.pci_devices, rows.compute_node_id == nodes.id)
    query = sa.select(nodes.host).distinct().select_from(joined).where(nodes.deleted == 0, rows.deleted == 0)
    return {host for host in connection.scalars(query) if host and (hosts is None or host in hosts)}

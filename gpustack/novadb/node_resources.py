"""Read what Nova's scheduler knows of compute nodes from the cell databases: free pools of devices, and NUMA nodes.

One query per cell. Placement does not have NUMA nodes, and no API shows the free ones.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.novadb import tables
from gpustack.novadb.databases import snapshot
from gpustack.novadb.model import DAMAGE, NodeResources, NumaNode, Pool
from gpustack.novadb.sources import Cell

_TABLE = tables.compute_nodes.c
_QUERY = sa.select(
    *(_TABLE.uuid, _TABLE.hypervisor_hostname, _TABLE.pci_stats, _TABLE.numa_topology),
    *(_TABLE.cpu_allocation_ratio, _TABLE.ram_allocation_ratio),
).where(_TABLE.deleted == 0)


def read(cells: Iterable[Cell]) -> tuple[dict[str, NodeResources], list[str]]:
    """Return the compute nodes of cells by uuid, and what could not be read."""
    nodes: dict[str, NodeResources] = {}
    problems: list[str] = []
    for cell in cells:
        try:
            with snapshot(cell.database) as connection:
                rows = connection.execute(_QUERY).mappings().all()
        except DatabaseError as error:
            problems.append(f"cell {cell.name}: {error.what}")
            continue
        for row in rows:
            try:
                nodes[str(row["uuid"])] = _node(row, cell)
            except DAMAGE:
                problems.append(f"cell {cell.name}: the row of {row['hypervisor_hostname']!r} is unreadable")
    return nodes, problems


def _node(row: Mapping[Any, Any], cell: Cell) -> NodeResources:
    topology = json.loads(row["numa_topology"]) if row["numa_topology"] else None
    cells = _data(topology)["cells"] if topology else None
    ratios = (row["cpu_allocation_ratio"] or 1.0, row["ram_allocation_ratio"] or 1.0)
    return NodeResources(
        uuid=str(row["uuid"]),
        name=str(row["hypervisor_hostname"]),
        pools=tuple(map(_pool, _data(json.loads(row["pci_stats"]))["objects"])) if row["pci_stats"] else (),
        nodes={int(_data(part)["id"]): _numa_node(_data(part), *ratios) for part in cells} if cells else None,
        disabled=cell.disabled,
    )


def _data(primitive: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an object of Nova."""
    fields: Mapping[str, Any] = primitive["nova_object.data"]
    return fields


def _pool(primitive: Mapping[str, Any]) -> Pool:
    fields = _data(primitive)
    tags = fields.get("tags") or {}
    return Pool(
        vendor=str(fields["vendor_id"]),
        product=str(fields["product_id"]),
        dev_type=str(tags.get("dev_type") or ""),
        node=fields.get("numa_node"),
        count=int(fields["count"]),
        address=str(tags.get("address") or ""),
    )


def _numa_node(cell: Mapping[str, Any], cpu_ratio: float, ram_ratio: float) -> NumaNode:
    cpus = frozenset(map(int, cell["cpuset"]))
    pages = map(_data, cell.get("mempages") or ())
    return NumaNode(
        cpus=cpus,
        # Before Train, one set was for both kinds of instances.
        pcpus=frozenset(map(int, cell["pcpuset"])) if "pcpuset" in cell else cpus,
        pinned=frozenset(map(int, cell["pinned_cpus"])),
        siblings=tuple(frozenset(map(int, core)) for core in cell.get("siblings") or ()),
        cpu_usage=int(cell["cpu_usage"]),
        memory=int(cell["memory"]),
        memory_usage=int(cell["memory_usage"]),
        pages={
            int(page["size_kb"]): (
                int(page["total"]),
                int(page["total"]) - float(page["used"]) - int(page.get("reserved") or 0),
            )
            for page in pages
        },
        cpu_ratio=cpu_ratio,
        ram_ratio=ram_ratio,
        socket=cell.get("socket"),
    )

"""The free devices and NUMA nodes of a cell database, in the form of Nova's objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpustack.novadb.databases import database
from gpustack.novadb.model import NumaNode, Pool
from gpustack.novadb.node_resources import read
from gpustack.novadb.sources import Cell


def wrapped(**fields: Any) -> dict[str, Any]:
    return {"nova_object.name": "X", "nova_object.version": "1.0", "nova_object.data": fields}


PAGES = [wrapped(size_kb=4, total=1 << 20, used=1 << 18, reserved=0), wrapped(size_kb=1 << 20, total=12, used=4)]
CELL = {
    "id": 0,
    "cpuset": [0, 1, 2],
    "pcpuset": [4, 5, 6, 7],
    "pinned_cpus": [4],
    "siblings": [[4, 5], [6, 7]],
    "cpu_usage": 2,
    "memory": 16384,
    "memory_usage": 1024,
    "mempages": PAGES,
    "socket": 1,
}
POOL = {"vendor_id": "10de", "product_id": "11b4", "numa_node": 0, "count": 2}


def cell(path: Path, *rows: dict[str, Any]) -> Cell:
    """A cell whose database has these compute nodes."""
    engine = sa.create_engine(f"sqlite:///{path}")
    columns = ("uuid", "hypervisor_hostname", "pci_stats", "numa_topology")
    table = sa.Table(
        "compute_nodes",
        sa.MetaData(),
        *(sa.Column(name, sa.Text) for name in columns),
        *(sa.Column(name, sa.Float) for name in ("cpu_allocation_ratio", "ram_allocation_ratio")),
        sa.Column("deleted", sa.Integer),
    )
    table.create(engine)
    known = {"hypervisor_hostname": "gpu1", "cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.5, "deleted": 0}
    with engine.begin() as connection:
        for row in rows:
            connection.execute(table.insert().values(**known, **row))
    engine.dispose()
    return Cell(uuid="c", name="cell1", disabled=False, database=database("cell1", f"sqlite:///{path}"))


def row(uuid: str, pool: dict[str, Any] = POOL, numa: dict[str, Any] | None = None) -> dict[str, Any]:
    stats = json.dumps(wrapped(objects=[wrapped(tags={"dev_type": "type-PCI", "address": "0000:81:00.0"}, **pool)]))
    topology = json.dumps(wrapped(cells=[wrapped(**(numa or CELL))]))
    return {"uuid": uuid, "pci_stats": stats, "numa_topology": topology}


def test_pools_and_nodes_are_read(tmp_path: Path) -> None:
    nodes, problems = read([cell(tmp_path / "cell.sqlite", row("a"))])
    assert not problems
    address = "0000:81:00.0"
    assert nodes["a"].pools == (
        Pool(vendor="10de", product="11b4", dev_type="type-PCI", node=0, count=2, address=address),
    )
    assert nodes["a"].nodes == {
        0: NumaNode(
            cpus=frozenset({0, 1, 2}),
            pcpus=frozenset({4, 5, 6, 7}),
            pinned=frozenset({4}),
            siblings=(frozenset({4, 5}), frozenset({6, 7})),
            cpu_usage=2,
            memory=16384,
            memory_usage=1024,
            pages={4: (1 << 20, (1 << 20) - (1 << 18)), 1 << 20: (12, 8)},
            cpu_ratio=4.0,
            ram_ratio=1.5,
            socket=1,
        )
    }
    assert nodes["a"].nodes[0].free == {5, 6, 7}


def test_old_nodes_have_one_set_of_processors_and_no_pages(tmp_path: Path) -> None:
    old = {key: value for key, value in CELL.items() if key not in ("pcpuset", "mempages", "socket")}
    nodes, _problems = read([cell(tmp_path / "cell.sqlite", row("a", numa={**old, "pinned_cpus": [0]}))])
    assert nodes["a"].nodes is not None
    assert (nodes["a"].nodes[0].free, nodes["a"].nodes[0].pages) == ({1, 2}, {})


def test_damaged_rows_and_silent_cells_are_reported(tmp_path: Path) -> None:
    broken = {"uuid": "b", "pci_stats": "{", "numa_topology": None}
    empty = {"uuid": "c", "pci_stats": None, "numa_topology": None}
    missing = Cell(
        uuid="d", name="cell2", disabled=False, database=database("cell2", f"sqlite:///{tmp_path / 'none.sqlite'}")
    )
    nodes, problems = read([cell(tmp_path / "cell.sqlite", row("a"), broken, empty), missing])
    assert nodes.keys() == {"a", "c"}
    assert (nodes["c"].pools, nodes["c"].nodes) == ((), None)
    assert [problem.partition(":")[0] for problem in problems] == ["cell cell1", "cell cell2"]

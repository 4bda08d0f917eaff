"""Cells are read a hundred compute nodes at a time, and healthy ones cost no statement of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.sources import Sources
from gpustack.repair import evidence, plan
from gpustack.repair.plan import Selection
from support.cellfile import CellFile, ago, nova_conf


def healthy(cell: CellFile, first: int, count: int) -> None:
    """Add compute nodes that are up, each with an instance that has the device it requests."""
    numbers = range(first, first + count)
    requests = json.dumps([{"count": 1, "alias_name": "g", "request_id": "r", "spec": []}])
    pools = json.dumps({"nova_object.data": {"objects": []}})
    row = {"vendor_id": "10de", "product_id": "1", "dev_type": "type-PCI", "label": "l", "status": "allocated"}
    with cell.engine.begin() as connection:
        for table, values in (
            (tables.compute_nodes, lambda n: {"host": f"h{n}", "hypervisor_hostname": f"h{n}", "pci_stats": pools}),
            (tables.services, lambda n: {"host": f"h{n}", "binary": "nova-compute", "last_seen_up": ago(-30)}),
            (tables.instances, lambda n: {"uuid": f"vm{n}", "host": f"h{n}", "node": f"h{n}", "vm_state": "active"}),
            (tables.instance_extra, lambda n: {"instance_uuid": f"vm{n}", "pci_requests": requests}),
            (
                tables.pci_devices,
                lambda n: {**row, "compute_node_id": n, "address": "a", "instance_uuid": f"vm{n}", "request_id": "r"},
            ),
        ):
            records = [{"id": n, "deleted": 0, "updated_at": ago(), "created_at": ago(), **values(n)} for n in numbers]
            connection.execute(table.insert(), records)


def test_statements_grow_by_the_hundred_compute_nodes(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    counts, statements = [], []

    def record(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        for first in (1, 101, 301):
            healthy(cell, first, 200 if first > 100 else 100)
            statements.clear()
            assert plan.make(Sources.from_nova_conf([conf]), Selection()).verdicts == ()
            counts.append(len(statements))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    for_hundred, for_three, for_five = counts
    assert for_three - for_hundred == for_five - for_three == 2 * 3  # compute nodes, rows, instances with requests


def test_a_healthy_instance_is_matched_without_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Class F and class L both ask; with one request and its row, neither counts."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    healthy(cell, 1, 50)
    monkeypatch.setattr(evidence, "Counter", lambda *_: pytest.fail("rows of a healthy instance were counted"))
    assert plan.make(Sources.from_nova_conf([conf]), Selection()).verdicts == ()

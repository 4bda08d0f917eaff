"""Cells are read 500 compute nodes at a time, and healthy ones cost no statement of their own, and no rule."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.sources import Sources
from gpustack.repair import plan, rules
from gpustack.repair.plan import Selection
from support.cellfile import CellFile, ago, nova_conf
from support.small_cells import SmallCloud, draw


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


def test_statements_grow_by_five_hundred_compute_nodes(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    counts, statements = [], []

    def record(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        for first in (1, 501, 1501):
            healthy(cell, first, 1000 if first > 500 else 500)
            statements.clear()
            assert plan.make(Sources.from_nova_conf([conf]), Selection()).verdicts == ()
            counts.append(len(statements))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    once, thrice, five_times = counts
    assert thrice - once == five_times - thrice == 2 * 3  # compute nodes, rows, instances with requests


def test_no_rule_runs_on_healthy_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    healthy(cell, 1, 50)
    judged: list[str | None] = []
    judge = rules.judge
    monkeypatch.setattr(rules, "judge", lambda view, clock: judged.append(view.node.host) or judge(view, clock))
    sources = Sources.from_nova_conf([conf])
    made = plan.make(sources, Selection())
    assert (made.verdicts, judged) == ((), [])
    assert str(made.checked) == "1 cell, 50 hosts, 50 devices checked"
    with cell.engine.begin() as connection:
        connection.execute(tables.instances.update().where(tables.instances.c.id == 7).values(host="h8", node="h8"))
        connection.execute(tables.pci_devices.update().where(tables.pci_devices.c.id == 9).values(request_id="x"))
    assert {verdict.host for verdict in plan.make(sources, Selection()).verdicts} == {"h7", "h8", "h9"}
    assert judged == ["h7", "h8", "h9"]


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_node_that_is_left_out_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    cloud = SmallCloud(tmp_path)
    draw(cloud, Random(seed))  # noqa: S311
    sources = Sources.from_nova_conf([cloud.conf])
    quick = plan.make(sources, Selection())
    monkeypatch.setattr(rules, "healthy", lambda _node: False)
    complete = plan.make(sources, Selection())
    assert [(v.klass, v.status, v.host, v.owner) for v in quick.verdicts] == [
        (v.klass, v.status, v.host, v.owner) for v in complete.verdicts
    ]
    assert str(quick.checked) == str(complete.checked)

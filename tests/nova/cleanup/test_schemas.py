"""The databases that each release's own nova-manage makes: read, repaired and put back."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.changes.change import ChangeResult
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.plan import Selection
from gpustack_demo.embedded.environment import ensure
from gpustack_demo.embedded.releases import EmbeddedRelease, available
from gpustack_demo.embedded.templates import copy_template, ensure_templates
from support.cellfile import ago
from support.cleanup_runs import run, undone


def insert(connection: sa.Connection, table: sa.Table, **values: object) -> None:
    """A row; what may not be NULL is nothing."""
    required = {
        column.name: "" if isinstance(column.type, sa.String | sa.Text) else 0
        for column in table.columns
        if not column.nullable and column.default is None and column.name not in values and not column.primary_key
    }
    row = {"deleted": 0, "created_at": ago(), "updated_at": ago(), **required, **values}
    connection.execute(table.insert(), {name: value for name, value in row.items() if name in table.columns})


@pytest.mark.parametrize("release", available(), ids=lambda release: release.name)
def test_a_leak_in_the_schema_of_a_release(release: EmbeddedRelease, tmp_path: Path) -> None:
    environment = ensure(release.name)
    ensure_templates(environment)
    for name, template in (("api", "api"), ("cell1", "main")):
        copy_template(environment, template, tmp_path / f"{name}.sqlite")
    (tmp_path / "nova.conf").write_text(f"[api_database]\nconnection = sqlite:///{tmp_path}/api.sqlite\n")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/cell1.sqlite", poolclass=sa.NullPool)
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        for table, values in (
            ("services", {"host": "ctl", "binary": "nova-conductor", "last_seen_up": ago(0), "disabled": False}),
            ("services", {"host": "gpu1", "binary": "nova-compute", "last_seen_up": ago(), "disabled": False}),
            ("compute_nodes", {"id": 1, "host": "gpu1", "hypervisor_hostname": "gpu1", "uuid": "node"}),
            ("instances", {"uuid": "vm", "host": "gpu2", "node": "gpu2", "vm_state": "active"}),
            ("instance_extra", {"instance_uuid": "vm", "pci_requests": "[]"}),
            (
                "migrations",
                {
                    "instance_uuid": "vm",
                    "status": "done",
                    "migration_type": "evacuation",
                    "source_compute": "gpu1",
                    "source_node": "gpu1",
                },
            ),
            (
                "pci_devices",
                {"compute_node_id": 1, "address": "0000:81:00.0", "status": "allocated", "instance_uuid": "vm"},
            ),
        ):
            insert(connection, tables.tables[table], **values)
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite").begin() as connection:
        values = {"uuid": "1", "name": "cell1", "url": f"sqlite:///{tmp_path}/cell1.sqlite"}
        connection.execute(
            sa.text(
                "INSERT INTO cell_mappings (uuid, name, transport_url, database_connection, disabled)"
                " VALUES (:uuid, :name, 'none:///', :url, 0)"
            ),
            values,
        )

    def rows() -> list[tuple[object, ...]]:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.select(tables.tables["pci_devices"]))]

    before = rows()
    sources = Sources.from_nova_conf([tmp_path / "nova.conf"])
    cleanup_plan = plan.make(sources, Selection())
    assert [f"{v.klass} {v.status}" for v in cleanup_plan.verdicts] == ["A stale"]
    repairs = [verdict.to_dict() for verdict in cleanup_plan.repairs]
    (outcome,) = run(sources, tmp_path / "journal", repairs, selection=Selection())
    assert outcome.result is ChangeResult.DONE
    assert rows() != before
    list(undone(tmp_path / "journal", sources))
    assert rows() == before

"""The verdict of clean-up on an allocation of one device in Placement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from gpustack.cleanup.placement import Known, Provider
from gpustack.cleanup.rules import q_allocation_drift
from gpustack.cleanup.verdict import Verdict
from support import neighbourhood

OWNERS: dict[str, Any] = {"stranger": {"absent": True}}
CASE = {"rows": [{"status": "available"}], "service": {"seen": 5}, "owners": OWNERS}


def judged(document: dict[str, Any], owners: dict[str, Any] = OWNERS, **headers: str) -> Verdict:
    """The verdict on the one device of the case, which ``stranger`` has allocated."""
    view = neighbourhood.view({**CASE, "owners": owners})
    device = Provider(uuid="gpu", name="gpu1_X", root="node", address=view.rows[0].address, held={"stranger": 1})
    response = SimpleNamespace(status_code=200, headers=headers, json=lambda: document)
    cloud = SimpleNamespace(placement=SimpleNamespace(get=lambda path, microversion: response))
    with sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as connection:
        connection.exec_driver_sql("CREATE TABLE migrations (id INTEGER, uuid TEXT, status TEXT)")
        connection.exec_driver_sql("ALTER TABLE migrations ADD COLUMN instance_uuid TEXT")
        connection.exec_driver_sql("ALTER TABLE migrations ADD COLUMN updated_at DATETIME")
        reader = SimpleNamespace(
            connection=connection, owner=view.owners.__getitem__, views=lambda hosts, uuids: [view]
        )
        (verdict,) = q_allocation_drift.judge(reader, neighbourhood.clock(CASE), Known(devices=[device], cloud=cloud))  # type: ignore[arg-type]
    return verdict

"""The verdict of clean-up on an allocation of one device in Placement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from gpustack.cloud.placement import Known, Provider
from gpustack.repair.rules import q_allocation_drift
from gpustack.repair.verdict import Verdict
from support import neighbourhood

OWNERS: dict[str, Any] = {"stranger": {"absent": True}}
CASE: dict[str, Any] = {"rows": [{"status": "available"}], "service": {"seen": 5}, "owners": OWNERS}


_INVENTORIES = {"CUSTOM_PCI_10DE_11B4": {"total": 1, "reserved": 0}}
_ANSWER = {"inventories": _INVENTORIES, "resource_provider_generation": 1, "allocations": {}}


def judged(document: dict[str, Any], owners: dict[str, Any] = OWNERS, **headers: str) -> Verdict:
    """The verdict on the one device of the case, which ``stranger`` has allocated."""
    (verdict,) = verdicts({**CASE, "owners": owners}, [{"stranger": 1}], document, **headers)
    return verdict


def verdicts(
    case: dict[str, Any], held: list[dict[str, int]], document: dict[str, Any] = _ANSWER, **headers: str
) -> list[Verdict]:
    """The verdicts on the devices of the case: those of its rows, or those at its ``providers``.

    :param held: the allocated amount by consumer, for each device.
    :param document: Placement's answer about a consumer, and about a device.
    """
    view = neighbourhood.view(case)
    addresses = case.get("providers") or [row.address for row in view.rows]
    names = ["gpu", *(f"gpu-{number}" for number in range(2, len(held) + 1))]
    devices = [
        Provider(uuid=name, name=f"gpu1_{address.upper()}", root="node", address=address, held=amounts)
        for name, address, amounts in zip(names, addresses, held, strict=False)
    ]
    response = SimpleNamespace(status_code=200, headers=headers, json=lambda: document)
    cloud = SimpleNamespace(placement=SimpleNamespace(request=lambda path, method, **_more: response))
    with sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as connection:
        connection.exec_driver_sql("CREATE TABLE migrations (id INTEGER, uuid TEXT, status TEXT)")
        connection.exec_driver_sql("ALTER TABLE migrations ADD COLUMN instance_uuid TEXT")
        connection.exec_driver_sql("ALTER TABLE migrations ADD COLUMN updated_at DATETIME")
        reader = SimpleNamespace(
            connection=connection, owner=view.owners.__getitem__, views=lambda hosts, uuids: [view]
        )
        known = Known(devices=devices, cloud=cloud)  # type: ignore[arg-type]
        return list(q_allocation_drift.judge(reader, neighbourhood.clock(case), known))  # type: ignore[arg-type]

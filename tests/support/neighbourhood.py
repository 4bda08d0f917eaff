"""A compute node, its rows and their owners, from the short notation of a case.

Times are ages in seconds. Defaults: everything is an hour old, the host is ``gpu1`` and its nova-compute reported an
hour ago (so it is down), and instances are active and request one device.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from gpustack.novadb.hardware import Hardware, Present
from gpustack.novadb.model import UNREADABLE, ComputeNode, Instance, Migration, PciRow, Request, Service
from gpustack.novadb.view import Clock, NodeView, Owner
from gpustack.spec.model import OutOfService

NOW = datetime(2026, 11, 21, 12, 0, 0)  # noqa: DTZ001 - naive UTC, as Nova writes it
HOUR = 3600


def ago(seconds: int | str | None) -> datetime | None:
    if isinstance(seconds, str):
        return UNREADABLE
    return None if seconds is None else NOW - timedelta(seconds=seconds)


def clock(case: dict[str, Any]) -> Clock:
    heard = case.get("heard")
    return Clock(
        now=NOW,
        stopped=frozenset(case.get("stopped", ())),
        service_down_time=timedelta(seconds=case.get("service_down_time", 60)),
        heard=None if heard is None else ago(heard),
        stuck_after=timedelta(seconds=case.get("stuck_after", 2 * HOUR)),
        doubt=case.get("doubt", ""),
        unblock=frozenset(("gpu1", address) for address in case.get("unblock", ())),
        out_of_service=tuple(
            OutOfService(host="gpu1.example.org", address=address, reason="no reset")
            for address in case.get("out_of_service", ())
        ),
    )


def view(case: dict[str, Any]) -> NodeView:
    host = "gpu1"
    node = case.get("node", {})
    service = case.get("service", {})
    owners = {name: _owner(name, entry or {}) for name, entry in case.get("owners", {}).items()}
    return NodeView(
        cell="cell1",
        node=ComputeNode(
            id=1,
            uuid="node",
            host=host,
            hypervisor_hostname=node.get("name", host),
            deleted=1 if node.get("deleted") else 0,
            updated_at=ago(node.get("age", HOUR)),
            deleted_at=ago(node.get("deleted")),
            pci_stats=node.get("pci_stats", _right_pools(case)),
        ),
        service=None if service is None else _service(host, service),
        rows=tuple(_row(number, entry) for number, entry in enumerate(case.get("rows", ()), start=1)),
        owners=owners,
        has_request_ids=case.get("request_ids", True),
        services=_services(case),
        written={n: entry["written"] for n, entry in enumerate(case.get("rows", ()), start=1) if "written" in entry},
        moves=tuple(
            _migration(entry.pop("of"), 90 + n, entry) for n, entry in enumerate(map(dict, case.get("moves", ())))
        ),
        hardware=_hardware(case["hardware"]) if "hardware" in case else None,
    )


def _hardware(entry: dict[str, Any]) -> Hardware:
    present = {}
    for address, text in entry["present"].items():
        ids, kind = text.split()
        vendor, product = ids.split(":")
        present[address] = Present(vendor_id=vendor, product_id=product, dev_type=kind)
    offered = frozenset(entry["offered"]) if "offered" in entry else None
    return Hardware(present=present, offered=offered, read_at=ago(entry.get("age", 0)))


def _right_pools(case: dict[str, Any]) -> str:
    """The pools that a nova-compute computes from these rows."""
    free = Counter(
        row.get("type", "type-PCI")
        for row in case.get("rows", ())
        if row["status"] == "available" and not row.get("deleted")
    )
    pools = [
        {"vendor_id": "10de", "product_id": "11b4", "count": count, "tags": {"dev_type": kind}}
        for kind, count in free.items()
    ]
    return json.dumps({"nova_object.data": {"objects": [{"nova_object.data": pool} for pool in pools]}})


def _service(host: str, entry: dict[str, Any]) -> Service:
    last_seen = ago(entry.get("seen", HOUR))
    down = entry.get("forced_down", False)
    interval = entry.get("interval", 10)
    readable = last_seen is not None and last_seen.year > 2000
    created = last_seen - timedelta(seconds=1000 * (interval or 0)) if last_seen and readable else last_seen
    return Service(
        host=host,
        disabled=False,
        forced_down=down,
        last_seen_up=last_seen,
        updated_at=ago(entry["written"]) if "written" in entry else last_seen,
        created_at=created,
        report_count=1000 if interval else None,
    )


def _services(case: dict[str, Any]) -> dict[str, Service]:
    """All other hosts that a case names are up, unless the case overrides that."""
    entries = {"gpu1": case.get("service", {}), **case.get("services", {})}
    hosts = ("gpu1", "gpu2", "gpu3")
    by_host = {host: entries.get(host, {"seen": 5}) for host in (*hosts, *entries)}
    return {host: _service(host, entry) for host, entry in by_host.items() if entry is not None}


def _row(number: int, entry: dict[str, Any]) -> PciRow:
    return PciRow(
        id=number,
        compute_node_id=1,
        address=entry.get("address", f"0000:8{number}:00.0"),
        vendor_id="10de",
        product_id="11b4",
        dev_type=entry.get("type", "type-PCI"),
        status=entry["status"],
        instance_uuid=entry.get("owner"),
        request_id=entry.get("request"),
        parent_addr=entry.get("parent"),
        deleted=entry.get("deleted", 0) and number,
        updated_at=ago(entry.get("age", HOUR)),
        created_at=ago(entry.get("created", 30 * HOUR)),
    )


def _owner(uuid: str, entry: dict[str, Any]) -> Owner:
    instance = None
    if not entry.get("absent") and "unknown" not in entry:
        instance = Instance(
            uuid=uuid,
            host=entry.get("host", "gpu2"),
            node=entry.get("node", entry.get("host", "gpu2")),
            vm_state=entry.get("state", "active"),
            task_state=entry.get("task"),
            deleted=7 if entry.get("deleted") else 0,
            hidden=entry.get("hidden", False),
            display_name="vm",
            cell="cell1",
            updated_at=ago(entry.get("deleted") or entry.get("age", HOUR)),
        )
    requests: list[str | None] | None = entry.get("wants", ["r1"])
    return Owner(
        uuid=uuid,
        instance=instance,
        in_several_cells=entry.get("in_several_cells", False),
        migrations=tuple(_migration(uuid, number, m) for number, m in enumerate(entry.get("moves", ()), start=1)),
        requests=None
        if requests is None
        else tuple(Request(request_id=request_id, count=1, alias_name="k4200") for request_id in requests),
        unknown_because=entry.get("unknown"),
    )


def _migration(uuid: str, number: int, entry: dict[str, Any]) -> Migration:
    source, destination = entry.get("from", "gpu1"), entry.get("to", "gpu2")
    return Migration(
        id=number,
        instance_uuid=uuid,
        source_compute=source,
        source_node=source,
        dest_compute=destination,
        dest_node=destination,
        status=entry["status"],
        migration_type=entry.get("type", "migration"),
        cross_cell_move=False,
        updated_at=ago(entry.get("age", HOUR)),
    )

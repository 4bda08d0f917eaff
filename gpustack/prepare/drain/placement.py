"""Ask Placement what instances need and where it is free. Errors are ignored: the scheduler still decides."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError
from gpustack.cloud.session import raise_refusal, translated_errors
from gpustack.prepare.drain.capacity import Amounts, Room

if TYPE_CHECKING:
    from openstack.connection import Connection

_VERSION = {"OpenStack-API-Version": "placement 1.29"}  # Rocky
_CLASSES = frozenset({"VCPU", "MEMORY_MB", "DISK_GB"})
"""The resource classes that every release of Nova requests for a move; ``PCPU`` may become another class."""
_MOST = 1000


def needs_of(connection: Connection, server_id: str) -> Amounts:
    """Return what an instance has allocated; empty if Placement cannot be read."""
    answer = _get(connection, f"/allocations/{server_id}")
    amounts: Counter[str] = Counter()
    for provider in (answer or {}).get("allocations", {}).values():
        amounts.update({name: amount for name, amount in provider["resources"].items() if name in _CLASSES})
    return dict(amounts)


def room_of(connection: Connection, needs: Amounts) -> Room | None:
    """Return the hosts with room whose nova-compute is not disabled; None if Placement cannot be read."""
    query = {
        "resources": ",".join(f"{name}:{amount}" for name, amount in sorted(needs.items())),
        "required": "!COMPUTE_STATUS_DISABLED",
        "limit": _MOST,
    }
    answer = _get(connection, "/allocation_candidates", query)
    if answer is None:
        return None
    free = {
        provider: {name: resource["capacity"] - resource["used"] for name, resource in summary["resources"].items()}
        for provider, summary in answer["provider_summaries"].items()
    }
    return Room(free=free, whole=len(answer["allocation_requests"]) < _MOST)


def _get(connection: Connection, path: str, query: dict[str, object] | None = None) -> Any:  # noqa: ANN401 - JSON
    doing = "ask Placement for room"
    try:
        with translated_errors(doing):
            base = connection.endpoint_for("placement")
            if not base:
                return None
            url = f"{str(base).rstrip('/')}{path}"
            answer = connection.session.get(url, headers=_VERSION, params=query, raise_exc=False)
            raise_refusal(answer, doing, url)
            return answer.json()
    except CloudError:
        return None

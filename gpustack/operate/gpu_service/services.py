"""The nova-compute service of a host: whether it takes new instances. Without PCI in Placement, nothing finer does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from gpustack.base.errors import UsageError
from gpustack.cloud.session import raise_refusal, translated_errors
from gpustack.fleet.requests import get, well_formed

if TYPE_CHECKING:
    from openstack.connection import Connection

_VERSION = "2.53"
"""Pike; the first with uuids of services."""
_LONGEST = 255


@dataclass(frozen=True, kw_only=True)
class Service:
    """A nova-compute service; ``reason`` is that of its disabling."""

    id: str
    host: str
    enabled: bool
    reason: str = ""


def read(cloud: Connection, host: str) -> Service:
    """Return the service of a host, by the host's exact name.

    :raises UsageError: if Nova has none.
    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read the nova-compute service"
    content = get(cloud, "compute", f"/os-services?binary=nova-compute&host={quote(host)}", doing, version=_VERSION)
    with well_formed(doing):
        services = [
            Service(
                id=str(entry["id"]),
                host=str(entry["host"]),
                enabled=entry["status"] == "enabled",
                reason=str(entry.get("disabled_reason") or ""),
            )
            for entry in content["services"]
            if entry["host"] == host
        ]
    if len(services) != 1:
        raise UsageError(
            f"Nova has {len(services) or 'no'} nova-compute service{'s'[: len(services) > 1]} on {host}",
            remedy="name the host as Nova does: openstack compute service list",
        )
    return services[0]


def switch(cloud: Connection, service: Service, *, enabled: bool, reason: str = "") -> None:
    """Enable or disable a service.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = f"{'enable' if enabled else 'disable'} nova-compute of {service.host}"
    body = {"status": "enabled"} if enabled else {"status": "disabled", "disabled_reason": reason[:_LONGEST]}
    with translated_errors(doing):
        answer = cloud.compute.put(f"/os-services/{service.id}", json=body, microversion=_VERSION)
    raise_refusal(answer, doing, None)

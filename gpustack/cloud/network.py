"""Neutron: find instances with ports on devices, such as SR-IOV functions, which Nova's API does not show.

``binding:vnic_type`` is the type of a port. Before a live migration, Nova detaches most device ports from the instance
and attaches new ones on the destination (``_detach_direct_passthrough_vifs`` in nova/virt/libvirt/driver.py), which the
guest must tolerate. Nova refuses other types (``block_port_accelerators``, and ``reject_vdpa_instances`` of older
releases, in nova/compute/api.py). So these ports count as devices, unless the operator configures otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.base.errors import CloudError
from gpustack.cloud import Connection
from gpustack.cloud.session import raise_refusal, translated_errors

_PLAIN = frozenset({"", "normal", "baremetal"})
"""All other types, including future ones, count as devices."""
_VERSION = "/v2.0"
"""The only version of Neutron's API."""
_DOING = "list the ports of a host"


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports on devices of a host's instances.

    :ivar kinds: the types of ports on devices, by instance id.
    :ivar none: why there is nothing to ask; empty otherwise.
    :ivar unknown: why Neutron could not be asked; empty otherwise.
    """

    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    none: str = ""
    unknown: str = ""


def ports_of(connection: Connection, host: str) -> Ports:
    """Return the ports on devices of a host's instances, in one request. Errors become ``unknown``."""
    try:
        with translated_errors(_DOING):
            if (base := _endpoint(connection)) is None:
                return Ports(none="the cloud has no network service, so none is a device's")
            query = {"binding:host_id": host, "fields": ["device_id", "binding:vnic_type", "binding:host_id"]}
            answer = connection.session.get(f"{base}/ports", params=query, raise_exc=False)
            raise_refusal(answer, "network", "/ports", _DOING)
            return Ports(kinds=_kinds(answer.json()["ports"], host))
    except CloudError as error:
        return Ports(unknown=" ".join(error.what.split()))


def _endpoint(connection: Connection) -> str | None:
    """Return Neutron's endpoint; None if the cloud has none, for which the SDK's own proxy fails an assertion."""
    from keystoneauth1.identity import BaseIdentityPlugin

    signed_in = isinstance(connection.session.auth, BaseIdentityPlugin)
    if not signed_in and not connection.config.config.get("network_endpoint_override"):
        return None  # without Keystone there is no catalogue, and the SDK returns one endpoint for all services
    if not (endpoint := connection.endpoint_for("network")):
        return None
    base = str(endpoint).rstrip("/")
    return base if base.endswith(_VERSION) else base + _VERSION


def _kinds(ports: list[dict[str, object]], host: str) -> dict[str, tuple[str, ...]]:
    by_server: dict[str, dict[str, None]] = {}
    for port in ports:
        kind = str(port.get("binding:vnic_type") or "")
        if kind not in _PLAIN and port.get("binding:host_id", host) == host:
            by_server.setdefault(str(port["device_id"]), {})[kind] = None
    return {server: tuple(kinds) for server, kinds in by_server.items()}

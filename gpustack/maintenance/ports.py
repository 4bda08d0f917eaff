"""Which guests have ports that are a device's: SR-IOV functions and their like. Nova's API does not tell; Neutron does.

A port's ``binding:vnic_type`` says what it is. Before Nova moves a guest live, it takes most of those out of the guest
and puts others in on the other side (``_detach_direct_passthrough_vifs`` in nova/virt/libvirt/driver.py), which the
guest has to bear; others it refuses (``block_port_accelerators``, and ``reject_vdpa_instances`` of older releases, in
nova/compute/api.py). So they count as devices, unless the operator says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustack.cloudapi import raise_refusal, translated_errors
from gpustack.errors import CloudError
from gpustack.maintenance.model import Ports

if TYPE_CHECKING:
    from openstack.connection import Connection

_PLAIN = frozenset({"", "normal", "baremetal"})
"""Everything else is a device's; so is a type that is made one day."""
_VERSION = "/v2.0"
"""The only one that Neutron has."""
_RETRIES = 3
_DOING = "list the ports of a host"


def ports_of(connection: Connection, host: str) -> Ports:
    """What Neutron tells of the guests of a host, in one request."""
    try:
        with translated_errors(_DOING):
            base = _endpoint(connection)
            if base is None:
                return Ports(none="the cloud has no network service, so none is a device's")
            query = {"binding:host_id": host, "fields": ["device_id", "binding:vnic_type", "binding:host_id"]}
            answer = connection.session.get(f"{base}/ports", params=query, raise_exc=False, connect_retries=_RETRIES)
            raise_refusal(answer, _DOING, base)
            return Ports(kinds=_kinds(answer.json()["ports"], host))
    except CloudError as error:
        return Ports(unknown=" ".join(error.what.split()))
    except (KeyError, TypeError):
        return Ports(unknown=f"can't {_DOING}: the answer at {base} is none of Neutron's")


def _endpoint(connection: Connection) -> str | None:
    """Where Neutron is; None when the cloud has none. The SDK's own proxy breaks an assertion when it has none."""
    from keystoneauth1.identity import BaseIdentityPlugin

    signed_in = isinstance(connection.session.auth, BaseIdentityPlugin)
    if not signed_in and not connection.config.config.get("network_endpoint_override"):
        return None  # without a Keystone there is no catalogue, and the SDK gives one endpoint for all services
    endpoint = connection.endpoint_for("network")
    if not endpoint:
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

"""The limits in Keystone without which Nova refuses every instance. In real clouds, nova-manage copies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openstack.connection import Connection

_LIMITS = {"servers": 1000, "class:VCPU": 1000, "class:MEMORY_MB": 1_000_000, "class:DISK_GB": 1000}


def register(admin: Connection) -> None:
    """Write high limits.

    :raises openstack.exceptions.HttpException: if Keystone refuses.
    """
    from openstack.exceptions import raise_from_response

    (service,) = admin.identity.get("/services?type=compute").json()["services"]
    entry = {"service_id": service["id"], "region_id": "RegionOne"}
    limits = [{**entry, "resource_name": name, "default_limit": limit} for name, limit in _LIMITS.items()]
    raise_from_response(admin.identity.post("/registered_limits", json={"registered_limits": limits}))

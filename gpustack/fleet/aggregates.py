"""Read the host aggregates of Nova."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustack.fleet.requests import get, well_formed
from gpustack.nova_options.aggregates import Aggregate

if TYPE_CHECKING:
    from openstack.connection import Connection

VERSION = "2.53"
"""Pike; listings from 2.41 on have the uuid."""


def aggregates(cloud: Connection) -> list[Aggregate]:
    """List the aggregates: one request.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "list aggregates"
    content = get(cloud, "compute", "/os-aggregates", doing, version=VERSION)
    with well_formed(doing):
        return [
            Aggregate(
                name=str(entry["name"]),
                hosts=frozenset(map(str, entry["hosts"])),
                metadata={str(name): str(value) for name, value in (entry["metadata"] or {}).items()},
                id=int(entry.get("id") or 0),
                uuid=str(entry.get("uuid") or ""),
            )
            for entry in content["aggregates"]
        ]

"""Read Nova's list of nova-compute services: whether they are enabled and up, and their availability zones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustack.cloud.session import compute_of, numbers
from gpustack.fleet.compute import CELLS
from gpustack.fleet.model import Gap, Source
from gpustack.fleet.requests import get, well_formed

if TYPE_CHECKING:
    from openstack.connection import Connection

_FORCED_DOWN = "2.11"
"""Liberty: the first microversion that lists services that an operator forced down; their state is ``down`` too."""
_SILENT = "UNKNOWN"
"""The status of services of a cell that does not answer."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A nova-compute.

    :ivar zone: the availability zone of its host.
    """

    host: str
    zone: str = ""
    enabled: bool = True
    up: bool = True

    @property
    def state(self) -> str:
        """``up``, ``down`` or ``disabled``: no new instance starts on the last two."""
        if not self.enabled:
            return "disabled"
        return "up" if self.up else "down"


def services(cloud: Connection) -> tuple[tuple[Service, ...], tuple[Gap, ...]]:
    """List the nova-compute services in one request, and what is missing.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "list the nova-compute services"
    _compute, _where, newest = compute_of(cloud)
    version = CELLS if not newest or newest >= numbers(CELLS) else _FORCED_DOWN
    content = get(cloud, "compute", "/os-services?binary=nova-compute", doing, version=version)
    with well_formed(doing):
        entries = content["services"]
        known = tuple(
            Service(
                host=str(entry["host"]),
                zone=str(entry.get("zone") or ""),
                enabled=entry["status"] == "enabled",
                up=entry["state"] == "up",
            )
            for entry in entries
            if entry["status"] != _SILENT
        )
    if missing := len(entries) - len(known):
        reason = f"a cell does not answer: the states of {missing} nova-compute services are unknown"
        return known, (Gap(source=Source.NOVA, reason=reason),)
    return known, ()

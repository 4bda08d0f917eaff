"""Read Nova's API: instances with the devices that their flavors request; migrations that hold allocations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError
from gpustack.cloud.session import Refused, compute_of, numbers
from gpustack.fleet.model import Disks, Gap, Server, Source
from gpustack.fleet.requests import get, pages, well_formed
from gpustack.spec.extra_specs import ALIAS, parse_alias, required_traits

if TYPE_CHECKING:
    from openstack.connection import Connection

_EMBEDDED = "2.47"
"""The first microversion whose listing includes the flavor with its extra specs (Pike)."""
CELLS = "2.69"
"""The first microversion that lists the instances of a cell that does not answer, with the status UNKNOWN (Stein)."""
MIGRATIONS = "2.59"
"""The first microversion with the uuid of a migration, its consumer in Placement (Queens)."""
_SOFT_DELETED = "soft_deleted=1"
"""Include instances that wait for ``reclaim_instance_interval``: they keep their devices. Nova hides them otherwise."""
_FORBIDDEN, _MISSING = 403, 404
_MOVING = ("MIGRATING", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "REBUILD", "BUILD")
_PAGES = 50
"""The most pages of migrations to search: Nova keeps them indefinitely."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The instances that the user may see, including those without devices.

    :ivar everything: whether they are those of all projects.
    """

    servers: tuple[Server, ...]
    everything: bool
    gaps: tuple[Gap, ...] = ()


def listing(cloud: Connection) -> Listing:
    """List the instances of all projects, or if the user may not, those of the user's project.

    :raises CloudError: if Nova cannot be reached, refuses, or is older than microversion 2.47.
    """
    _compute, where, newest = compute_of(cloud)
    if newest and newest < numbers(_EMBEDDED):
        raise CloudError(
            f"the compute API ends at microversion {'.'.join(map(str, newest))}; {_EMBEDDED} (Pike) is needed",
            where=where,
        )
    version = CELLS if not newest or newest >= numbers(CELLS) else _EMBEDDED
    try:
        entries, everything = _entries(cloud, f"/servers/detail?all_tenants=1&{_SOFT_DELETED}", version), True
    except Refused as error:
        if error.status != _FORBIDDEN:
            raise
        entries, everything = _entries(cloud, "/servers/detail?", version), False
    return _listing(entries, everything)


def _entries(cloud: Connection, path: str, version: str) -> list[Mapping[str, Any]]:
    return [entry for page in pages(cloud, path, "servers", "list instances", version=version) for entry in page]


def _listing(entries: Collection[Mapping[str, Any]], everything: bool) -> Listing:
    with well_formed("list instances"):
        silent = [entry for entry in entries if "flavor" not in entry]
        known = [entry for entry in entries if "flavor" in entry]
        hidden = [entry for entry in known if "extra_specs" not in entry["flavor"]]
        servers = tuple(map(_server, known))
    gaps = []
    if not everything:
        reason = "the user may list the instances of one project only: the others' are missing"
        gaps.append(Gap(source=Source.NOVA, reason=reason))
    if silent:
        reason = f"a cell does not answer: {len(silent)} of its instances are listed without their flavor and host"
        gaps.append(Gap(source=Source.NOVA, reason=reason))
    if hidden:
        reason = (
            f"the flavors of {len(hidden)} instances have no extra specs: the policy"
            " os_compute_api:os-flavor-extra-specs:index does not let this user read them"
        )
        gaps.append(Gap(source=Source.NOVA, reason=reason))
    if any(server.placed and not server.host for server in servers if server.devices):
        gaps.append(Gap(source=Source.NOVA, reason="the user may not see the hosts of instances"))
    return Listing(servers=servers, everything=everything, gaps=tuple(gaps))


def _server(entry: Mapping[str, Any]) -> Server:
    flavor = entry["flavor"]
    specs = flavor.get("extra_specs") or {}
    status, task = str(entry.get("status") or ""), entry.get("OS-EXT-STS:task_state")
    return Server(
        id=str(entry["id"]),
        name=str(entry.get("name") or ""),
        project=str(entry.get("tenant_id") or ""),
        user=str(entry.get("user_id") or ""),
        host=str(entry.get("OS-EXT-SRV-ATTR:host") or ""),
        node=str(entry.get("OS-EXT-SRV-ATTR:hypervisor_hostname") or ""),
        status=status,
        flavor=str(flavor.get("original_name") or ""),
        devices=parse_alias(str(specs.get(ALIAS) or "")),
        traits=required_traits(specs),
        since=moment(entry.get("OS-SRV-USG:launched_at")),
        placed=bool(entry.get("OS-EXT-SRV-ATTR:host") or entry.get("hostId")),
        moving=bool(task) or status in _MOVING,
        task=str(task or ""),
        locked=bool(entry.get("locked")),
        metadata={str(key): str(value) for key, value in (entry.get("metadata") or {}).items()},
        disks=_disks(entry, flavor),
    )


def _disks(entry: Mapping[str, Any], flavor: Mapping[str, Any]) -> Disks:
    sizes = (("ephemeral", "GiB"), ("swap", "MiB"))
    lost = [f"{kind} disk of {flavor[kind]} {unit}" for kind, unit in sizes if flavor.get(kind)]
    return Disks(image=bool(entry.get("image")), root=int(flavor.get("disk") or 0), lost=tuple(lost))


def moment(text: object) -> datetime | None:
    """A time of the API as naive UTC; None if there is none, or if it is unreadable."""
    try:
        parsed = datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed


def migrations(cloud: Connection, consumers: Collection[str]) -> dict[str, str]:
    """The instances of those consumers that are migrations, by the migration's uuid.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    missing = set(consumers)
    instances: dict[str, str] = {}
    if not missing:
        return instances
    listed = pages(cloud, "/os-migrations?", "migrations", "list migrations", version=MIGRATIONS)
    for number, page in enumerate(listed):
        with well_formed("list migrations"):
            instances |= {entry["uuid"]: str(entry["instance_uuid"]) for entry in page if entry["uuid"] in missing}
        missing -= instances.keys()
        if not missing or number >= _PAGES:
            break
    return instances


def server(cloud: Connection, uuid: str) -> Server | None:
    """Return one instance as it is now; None if it does not exist.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read an instance"
    try:
        content = get(cloud, "compute", f"/servers/{uuid}", doing, version=_EMBEDDED)
    except Refused as error:
        if error.status == _MISSING:
            return None
        raise
    with well_formed(doing):
        return _server(content["server"])

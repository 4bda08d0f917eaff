"""The request of an instance as Nova keeps it, with its fault and its console log."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from gpustack.cloud import Connection
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.cloud.microversions import (
    EMBEDDED_FLAVOR,
    GROUP_RULES,
    HINTS,
    IMAGE_PROPERTIES,
    PINNED_ZONE,
    SERVER_GROUPS,
    SILENT_CELLS,
)
from gpustack.cloud.servers import Server, moment, server_of
from gpustack.cloud.session import content_of, find, newest, request, well_formed


@dataclass(frozen=True, kw_only=True)
class BootRecord:
    """The request of an instance, and its fault.

    :ivar flavor: the embedded one, which outlives that of the cloud; without a root disk if that is a volume.
    :ivar image: the properties of its image; None before 2025.1.
    :ivar zone: the requested availability zone; empty for any, None before 2024.1.
    :ivar hints: its scheduler hints with their values; None before 2025.1.
    :ivar groups: the ids of its server groups.
    :ivar ports: how many PCI devices its ports request, if the API database was read.
    :ivar fault: Nova's message; empty without one.
    :ivar failed: the time of the fault, naive UTC.
    """

    server: Server
    flavor: Flavor
    image: Mapping[str, str] | None = None
    zone: str | None = None
    hints: Mapping[str, tuple[str, ...]] | None = None
    groups: tuple[str, ...] = ()
    ports: int = 0
    fault: str = ""
    failed: datetime | None = None


def boot(cloud: Connection, uuid: str) -> BootRecord | None:
    """Return the request of an instance; None if the instance does not exist.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read an instance"
    newer = (SILENT_CELLS, SERVER_GROUPS, PINNED_ZONE, IMAGE_PROPERTIES, HINTS)
    version = newest(cloud, EMBEDDED_FLAVOR, *newer, doing=doing)
    if (content := find(cloud, "compute", f"/servers/{uuid}", doing, version=version)) is None:
        return None
    with well_formed(doing):
        entry = content["server"]
        fault, image, flavor = entry.get("fault") or {}, entry.get("image") or {}, entry.get("flavor") or {}
        sizes = Sizes(**{name: int(flavor.get(name) or 0) for name in ("vcpus", "ram", "disk", "ephemeral", "swap")})
        sizes = sizes if image else replace(sizes, disk=0)  # its root disk is a volume
        specs = {str(name): str(value) for name, value in (flavor.get("extra_specs") or {}).items()}
        name = str(flavor.get("original_name") or "")
        has_image = version in (IMAGE_PROPERTIES, HINTS)
        return BootRecord(
            server=server_of(entry),
            flavor=Flavor(id=name, name=name, sizes=sizes, extra_specs=specs),
            image={str(k): str(v) for k, v in (image.get("properties") or {}).items()} if has_image else None,
            zone=str(entry["pinned_availability_zone"] or "") if "pinned_availability_zone" in entry else None,
            hints=_hints(entry.get("scheduler_hints") or {}) if version is HINTS else None,
            groups=tuple(map(str, entry.get("server_groups") or ())),
            fault=" ".join(str(fault.get("message") or "").split()),
            failed=moment(fault.get("created")),
        )


def _hints(hints: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Scheduler hints, of which some have one value, and others several."""
    return {
        str(name): tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
        for name, value in hints.items()
    }


@dataclass(frozen=True, kw_only=True)
class ServerGroup:
    """A server group.

    :ivar policy: such as ``anti-affinity``.
    :ivar members: the ids of its instances that are not deleted.
    :ivar most: the most of them that a host may have, with the policy ``anti-affinity``.
    """

    name: str
    policy: str
    members: tuple[str, ...] = ()
    most: int = 1


def server_group(cloud: Connection, uuid: str) -> ServerGroup | None:
    """Return a server group; None if it does not exist.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read a server group"
    content = find(cloud, "compute", f"/os-server-groups/{quote(uuid, safe='')}", doing, version=GROUP_RULES)
    if content is None:
        return None
    with well_formed(doing):
        group = content["server_group"]
        return ServerGroup(
            name=str(group["name"]),
            policy=str(group["policy"]),
            members=tuple(map(str, group["members"])),
            most=int((group.get("rules") or {}).get("max_server_per_host", 1)),
        )


def console_log(cloud: Connection, uuid: str) -> str:
    """Return the console log of an instance.

    :raises CloudError: if Nova cannot be reached or refuses, or if the hypervisor has none.
    """
    doing = "read the console log of an instance"
    body = {"os-getConsoleOutput": {"length": None}}
    answer = request(cloud, "compute", "POST", f"/servers/{uuid}/action", doing, body=body)
    with well_formed(doing):
        return str(content_of(answer, doing)["output"] or "")

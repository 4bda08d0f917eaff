"""Read Placement: the resource providers of PCI devices and of cards with vGPUs, with their use, and who holds them.

Two requests have all devices of a fleet: the list of providers, whose names show cards with vGPUs (Nova has no trait
for them), and the allocation candidates for one MiB, whose provider summaries contain the complete tree of each host
(microversion 1.29) with the capacity and use of each provider. A device without capacity is reserved. Hosts without a
free MiB take one request for each further resource class, and those beyond the ``max_allocation_candidates`` of
Placement one each. Only if nothing of a host is free, not even a GPU, its devices are read one by one.
"""

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpustack.cloud import Connection, placement
from gpustack.cloud.session import Progress, each, silent, tolerating, well_formed

_TRAIT = "COMPUTE_MANAGED_PCI_DEVICE"
_OF_NOVA = "COMPUTE_"
_CLASSES = ("MEMORY_MB", "VCPU", "PCPU", "DISK_GB")
"""One of these is free on almost every host."""
_UNKNOWN = frozenset({404, 406})
"""Answers of a Placement that does not know the microversion: its Nova cannot report devices."""
_LISTED = ("uuid", "name", "root", "node", "address", "mediated")
_DOING = "read the devices in Placement"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A PCI device in Placement, or a card on which nova-compute creates mediated devices.

    :ivar root: the uuid of the compute node's provider.
    :ivar node: the name of the compute node.
    :ivar capacity: the units that can be allocated, without reserved ones.
    :ivar closed: whether the nova-compute of its host is disabled, so that no new instance gets it.
    :ivar traits: its traits, without those of Nova itself.
    """

    uuid: str
    name: str
    root: str
    node: str
    address: str
    resource_class: str = ""
    capacity: int = 0
    used: int = 0
    closed: bool = False
    mediated: bool = False
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """What a consumer has allocated of devices: the amount, by provider."""

    uuid: str
    project: str
    user: str
    devices: Mapping[str, int]


def devices(cloud: Connection) -> tuple[Device, ...] | None:
    """Return all PCI devices and cards with vGPUs; None if this Placement has none, so that Nova reports none.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    known: list[Device] = []
    with tolerating(*_UNKNOWN):
        listed = [entry for entry in placement.listed(cloud) if entry.address]
        known = [Device(**{name: getattr(entry, name) for name in _LISTED}) for entry in listed]
    return tuple(_counted(cloud, known)) or None if known else None


def _counted(cloud: Connection, known: Collection[Device]) -> list[Device]:
    """The devices with their capacity and use."""
    summaries: dict[str, Mapping[str, Any]] = {}

    def missing() -> list[Device]:
        return [device for device in known if device.uuid not in summaries]

    for names in (lambda: _CLASSES, lambda: placement.device_classes(cloud)):
        for name in names() if missing() else ():
            if trees := dict.fromkeys(device.root for device in missing()):
                summaries |= placement.summaries(cloud, name, trees, _DOING)
    with well_formed(_DOING):
        closed = {uuid for uuid, summary in summaries.items() if placement.DISABLED in summary.get("traits", ())}
        counted = [
            replace(_with(device, summaries[device.uuid]), closed=device.root in closed)
            for device in known
            if device.uuid in summaries and _is_of_nova(device, summaries[device.uuid].get("traits", ()))
        ]
    counted += filter(None, each(lambda device: _single(cloud, device), missing()))
    return sorted(counted, key=lambda device: (device.node, device.address))


def _is_of_nova(device: Device, traits: Collection[str]) -> bool:
    """Whether Nova reports a device: others, such as Cyborg's, have addresses in their names too."""
    return device.mediated or _TRAIT in traits


def _with(device: Device, summary: Mapping[str, Any]) -> Device:
    resources: Mapping[str, Mapping[str, int]] = summary["resources"]
    return replace(
        device,
        traits=_distinct(frozenset(name for name in summary.get("traits", ()) if not name.startswith(_OF_NOVA))),
        resource_class=", ".join(sorted(resources)),
        capacity=sum(int(resource["capacity"]) for resource in resources.values()),
        used=sum(int(resource["used"]) for resource in resources.values()),
    )


@functools.lru_cache(maxsize=256)
def _distinct(traits: frozenset[str]) -> frozenset[str]:
    """The same object for equal sets: thousands of devices have the same traits."""
    return traits


def _single(cloud: Connection, device: Device) -> Device | None:
    """A device of a host of which nothing is free; None if it was removed since it was listed."""
    inventory = placement.inventory(cloud, device.uuid)
    used = placement.usage(cloud, device.uuid) if inventory else None
    traits = placement.traits(cloud, device.uuid) if used is not None else None
    if inventory is None or used is None or traits is None or not _is_of_nova(device, traits[0]):
        return None
    resources = {name: {"capacity": count, "used": used.get(name, 0)} for name, count in inventory.unreserved.items()}
    return _with(device, {"resources": resources, "traits": traits[0]})


def consumers(
    cloud: Connection, uuids: Iterable[str], devices: Collection[str], progress: Progress = silent
) -> list[Consumer]:
    """Return what these instances have allocated of these devices: one request each.

    :raises CloudError: if Placement cannot be reached or refuses.
    """

    def ask(uuid: str) -> Consumer:
        known = placement.allocations_of(cloud, uuid)
        held = {
            provider: sum(allocation["resources"].values())
            for provider, allocation in known["allocations"].items()
            if provider in devices
        }
        return Consumer(uuid=uuid, project=known.get("project_id") or "", user=known.get("user_id") or "", devices=held)

    return list(each(ask, uuids, progress))

"""The vGPU framework of a card, and the types that its driver supports, by name.

The numbers of types change with releases of NVIDIA's driver; their names do not.
"""

import re
from collections.abc import Iterator
from typing import Literal

from gpustack.hosts.facts.collector.vgpus import DOMAINS, RECORD
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.vgpu_model import VgpuType
from gpustack.linux.drivers import BY_ID

NVIDIA = "nvidia"
"""The host driver that creates all virtual functions of a card; those with a vGPU type work."""
_RESOLVED = re.compile(r"(\S+) has the vGPU type (\S+) as number ([0-9]{1,9})")


def framework(host: Host, function: Function) -> Literal["vfio", "mdev"] | None:
    """The way in which the driver of a card, or of a virtual function, creates vGPUs.

    None if it creates none at present: without a vGPU driver, or before the virtual functions of the card exist.
    """
    parts = host.virtual.get(function.address, ())
    return next((f.vgpu_framework for f in (function, *parts) if f.vgpu_framework is not None), None)


def type_named(host: Host, function: Function, name: str) -> VgpuType | str:
    """The type with a name on a card or a virtual function, or the reason why it has none.

    NVIDIA's driver lists only the types that it can create at present. A card without room has the number that the unit
    found at boot.
    """
    card = host.functions.get(function.physical_function or "", function)
    places = (function, card, *host.virtual.get(card.address, ()))
    own: tuple[VgpuType, ...] = next((place.vgpu_types for place in places if place.vgpu_types), ())
    numbers = {kind.number: kind for kind in own if is_named(kind, name)}
    if len(numbers) > 1:
        return f"the driver has the type {name} with several numbers: {', '.join(sorted(numbers))}"
    if numbers:
        return next(iter(numbers.values()))
    if (number := number_at_boot(host, card, name)) is not None:
        return VgpuType(number=number, name=name)
    reason = driver_fault(host, card)
    if framework(host, function) is None and (reason is not None or not card.sriov_numvfs):
        return reason or "the virtual functions of the card do not exist yet"
    return f"the driver does not support the type {name}, or has no room for it"


def is_named(kind: VgpuType, name: str) -> bool:
    """Whether a type has a name: the last word of the driver's, which has a brand before it, or its directory."""
    is_directory = kind.number == name and not name.isdecimal()
    return is_directory or (kind.name or "").rpartition(" ")[2] == name


def short_name(kind: VgpuType) -> str:
    """The name of a type without its brand; its number if the driver has no name for it."""
    return (kind.name or kind.number).rpartition(" ")[2]


def number_at_boot(host: Host, card: Function, name: str) -> str | None:
    """The number that the unit found for a type at its last start; None if it found none."""
    found = (_RESOLVED.fullmatch(line) for line in host.text(RECORD).splitlines())
    numbers = [match[3] for match in found if match is not None and (match[1], match[2]) == (card.address, name)]
    return numbers[-1] if numbers else None


def driver_fault(host: Host, card: Function) -> str | None:
    """Why the driver of a card can't create vGPUs; None if it can, or if a boot gives the card another driver."""
    if card.driver is None:
        return "the card has no driver"
    if card.driver == NVIDIA and "nvidia_vgpu_vfio" not in host.kernel.loaded_modules:
        return "the driver nvidia is not the vGPU driver: the module nvidia_vgpu_vfio is not loaded"
    return None if card.driver in (NVIDIA, *BY_ID) else f"the driver {card.driver} creates no vGPUs"


def lacks_type(part: Function) -> bool:
    """Whether a virtual function is on NVIDIA's driver without a vGPU type, and so without memory."""
    return part.physical_function is not None and part.driver == NVIDIA and part.vgpu_type is None


def knows_domains(host: Host) -> bool:
    """Whether the facts have all domains of libvirt."""
    return host.domains is not None and not any(entry.path.startswith(DOMAINS) for entry in host.unread)


def owners(host: Host) -> dict[str, str]:
    """The instances of vGPUs, also stopped ones, by the uuid of a mediated device or the address of a function."""
    return {device: domain.uuid for domain in host.domains or () for device in domain.devices}


def missing(host: Host) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The instances whose mediated devices or virtual functions the host lacks, each with these devices."""
    present = {device.uuid for function in host.pci for device in function.mediated_devices} | host.functions.keys()
    for domain in host.domains or ():
        if absent := tuple(device for device in domain.devices if device not in present):
            yield domain.uuid, absent


def unused(host: Host, function: Function) -> tuple[str, ...]:
    """The mediated devices of a function that no process and no instance has; empty if the instances are unknown."""
    if not (host.privileged and knows_domains(host)):
        return ()
    known = owners(host)
    return tuple(d.uuid for d in function.mediated_devices if d.user is None and d.uuid not in known)

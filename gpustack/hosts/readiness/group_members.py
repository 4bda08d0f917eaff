"""The members of a GPU's IOMMU group that are not part of its card: needed by the host, or without a driver.

vfio can open a group only while no member is bound to a host driver. A function that the host needs blocks the GPU; a
function without a driver is not changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpustack.hosts.facts.gpus import Gpu, assemble, is_gpu, is_nvswitch
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.drivers import is_host_driver
from gpustack.pci import classes


@dataclass(frozen=True, kw_only=True)
class Need:
    """A function that the host needs, and its uses (``interface eth0 (up)``, ``disk sda``)."""

    function: Function
    uses: tuple[str, ...]

    def __str__(self) -> str:
        reasons = (
            classes.word(self.function.pci_class),
            *((f"driver {self.function.driver}",) if self.function.driver else ()),
            *self.uses,
        )
        return f"{self.function.address} ({', '.join(reasons)})"


def needs(host: Host, gpu: Gpu) -> tuple[Need, ...]:
    """The functions of a GPU's card and group that the host needs, sorted by address.

    Functions of GPU cards (this one and others in the group) and NVSwitches are needed if the host uses a device on
    them: a disk, a network interface, or any USB device on a card's USB controller. Each other function is needed if
    it is bound to a host driver. GPUs themselves are never needed.
    """
    spared = {f.address for f in (*gpu.functions, *_along(host, gpu))}
    return tuple(
        Need(function=f, uses=tuple(describe_uses(f)))
        for f in sorted((*gpu.functions, *gpu.neighbours), key=lambda f: f.bdf)
        if is_host_driver(f.driver) and not is_gpu(f) and (f.address not in spared or any(describe_uses(f)))
    )


def peers(gpu: Gpu) -> tuple[Function, ...]:
    """The other GPUs in this GPU's IOMMU group: they can only be passed through to the same instance."""
    return tuple(f for f in gpu.neighbours if is_gpu(f))


def in_the_way(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    """The functions of the group that belong to peers' cards or are NVSwitches, and are bound to a host driver."""
    return tuple(f for f in _along(host, gpu) if is_host_driver(f.driver))


def idle(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    """The members of a GPU's group without a driver, except NVSwitches and functions of GPU cards, virtual ones too."""
    along = {f.address for f in _along(host, gpu)}
    along |= {f.address for peer in peers(gpu) for f in assemble(host, peer).virtual}
    return tuple(f for f in gpu.neighbours if f.driver is None and f.address not in along)


def _along(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    cards = {f.address for peer in peers(gpu) for f in assemble(host, peer).functions}
    return tuple(f for f in gpu.neighbours if f.address in cards or is_nvswitch(f))


def describe_uses(function: Function) -> Iterator[str]:
    """Descriptions of the devices that the running host has on a function."""
    uses = function.uses
    for interface in uses.net:
        yield f"interface {interface.name}" + (f" ({interface.state})" if interface.state else "")
    if uses.block:
        yield f"disk {', '.join(uses.block)}"
    if uses.usb:
        yield f"USB: {', '.join(uses.usb)}"
    if uses.input:
        yield f"input {', '.join(uses.input)}"

"""What a host needs of a GPU's IOMMU group: the reason why that GPU can't be given away.

A group goes to a guest as a whole, so whatever shares it leaves the host with the GPU. That is right for the GPU's
own functions (audio, USB, UCSI of its slot), and a disaster for the host's network card.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustack.facts.gpus import Gpu, is_gpu
from gpustack.facts.model import Function, Host
from gpustack.pci import catalogue, classes


@dataclass(frozen=True, kw_only=True)
class Need:
    """A function that the host needs, and what it is used for (``interface eth0 (up)``, ``disk sda``)."""

    function: Function
    uses: tuple[str, ...]

    def __str__(self) -> str:
        said = (
            classes.word(self.function.pci_class),
            *((f"driver {self.function.driver}",) if self.function.driver else ()),
            *self.uses,
        )
        return f"{self.function.address} ({', '.join(said)})"


def is_passthrough_driver(driver: str | None) -> bool:
    """Whether a driver holds functions for guests: vfio-pci, its variants (``mlx5_vfio_pci``), pci-stub.

    A variant driver registers with vfio's core as vfio-pci does, and is called ``*_vfio_pci`` throughout the kernel
    (``drivers/vfio/pci``).
    """
    name = (driver or "").replace("-", "_")
    return name == "pci_stub" or name.startswith("vfio") or name.endswith("vfio_pci")


def is_host_driver(driver: str | None) -> bool:
    """Whether a driver works for the host; ``pcieport`` only forwards, so it does not count."""
    return driver is not None and driver != "pcieport" and not is_passthrough_driver(driver)


def needs(host: Host, gpu: Gpu) -> tuple[Need, ...]:
    """The functions of a GPU's closure that the host needs, in the order of their addresses.

    Functions of the GPU's own slot are its companions, unless the host uses them: a network or storage
    controller with a host driver, a USB controller with a keyboard, disk or interface behind it. Of other slots,
    everything with a host driver counts. GPUs of other slots, with their companions, and NVSwitches are no needs:
    they go along (:func:`peers`).
    """
    own = {gpu.main.bdf.slot, *(peer.bdf.slot for peer in peers(host, gpu))}
    return tuple(
        Need(function=f, uses=tuple(describe_uses(f)))
        for f in gpu.companions
        if is_host_driver(f.driver) and not is_gpu(f) and _is_needed(f, foreign=f.bdf.slot not in own)
    )


def peers(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    """The GPUs of other slots that share this GPU's IOMMU group: they can only go to the same guest."""
    return tuple(f for f in gpu.outsiders() if is_gpu(f))


def describe_uses(function: Function) -> Iterator[str]:
    """What the running host uses a function for, in words."""
    uses = function.uses
    for interface in uses.net:
        yield f"interface {interface.name}" + (f" ({interface.state})" if interface.state else "")
    if uses.block:
        yield f"disk {', '.join(uses.block)}"
    if uses.usb:
        yield f"USB: {', '.join(uses.usb)}"
    if uses.input:
        yield f"input {', '.join(uses.input)}"


def _is_needed(function: Function, *, foreign: bool) -> bool:
    if function.pci_class.startswith((classes.NETWORK_BASE, classes.STORAGE_BASE)):
        return True
    if catalogue.is_nvswitch(function.vendor, function.product, function.pci_class):
        return False
    in_use = bool(function.uses.net or function.uses.block or function.uses.input)
    return foreign or in_use

"""GPUs, put together from functions: the card's own functions, and the neighbours that share its IOMMU group.

vfio lets a guest open a group when each member is on a driver for guests, on none at all, or a bridge that forwards
(Linux, ``drivers/vfio``, ``vfio_dev_viable``; ``drivers/iommu/iommu.c``, ``iommu_group_claim_dma_owner``). So only the
card's own functions are ever bound. Whatever else is in its group belongs to the host, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustack.facts.model import Function, Host
from gpustack.pci import catalogue, classes

_INTEL, _ATI, _AMD, _ZHAOXIN = "8086", "1002", "1022", "1d17"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of a host.

    :ivar main: the display, 3D or accelerator function that Nova offers.
    :ivar companions: the other functions of the card, in the order of their addresses.
    :ivar neighbours: the other members of its IOMMU group, bridges and its own virtual functions aside.
    :ivar bridges: the bridges of its group.
    """

    main: Function
    companions: tuple[Function, ...] = ()
    neighbours: tuple[Function, ...] = ()
    bridges: tuple[Function, ...] = ()

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the card: those that are bound together."""
        return (self.main, *self.companions)

    @property
    def name(self) -> str:
        """What people call the card."""
        main = self.main
        return catalogue.describe(
            main.vendor, main.product, main.pci_class, main.subsystem_vendor, main.subsystem_product
        )

    @property
    def dev_type(self) -> str:
        """How Nova lists it."""
        return self.main.dev_type


def gpus(host: Host) -> tuple[Gpu, ...]:
    """The GPUs of a host in the order of their addresses; console chips and virtual functions are none."""
    return tuple(assemble(host, main) for main in _mains(host))


def _mains(host: Host) -> Iterator[Function]:
    """The lowest GPU-like function of each slot: a second display function of a slot is a companion."""
    for members in host.slots.values():
        for function in members:
            if is_gpu(function):
                yield function
                break


def is_gpu(function: Function) -> bool:
    """Whether a function is a GPU that could be given to a guest, by class and catalogue."""
    return (
        classes.is_gpu_class(function.pci_class)
        and function.physical_function is None
        and not catalogue.is_console(function.vendor, function.product, function.pci_class)
    )


def nvswitches(host: Host) -> tuple[Function, ...]:
    """The NVSwitches of a host."""
    return tuple(filter(is_nvswitch, host.pci))


def is_nvswitch(function: Function) -> bool:
    """Whether a function is an NVSwitch, by class and catalogue."""
    return catalogue.is_nvswitch(function.vendor, function.product, function.pci_class)


def assemble(host: Host, main: Function) -> Gpu:
    """A GPU or an NVSwitch with the functions of its card and the rest of its group."""
    members = host.groups.get(main.iommu_group, ()) if main.iommu_group is not None else ()
    neighbours = [f for f in host.slots[main.bdf.slot] if f.address != main.address]
    neighbours += [f for f in members if f not in neighbours and _are_behind_one_card_switch(host, f, main)]
    companions = sorted((f for f in neighbours if _is_of_card(host, f, main)), key=lambda f: f.bdf)
    apart = {main.address, *(f.address for f in companions), *main.virtual_functions}
    others = [f for f in members if f.address not in apart]
    return Gpu(
        main=main,
        companions=tuple(companions),
        neighbours=tuple(f for f in others if not forwards(f)),
        bridges=tuple(f for f in others if forwards(f)),
    )


def forwards(function: Function) -> bool:
    """Whether vfio leaves a member of a group aside: ports, and host bridges.

    A host bridge is an ordinary function to vfio, and counts once a driver has it: those of EDAC do that.
    """
    if not classes.is_forwarding_bridge(function.pci_class):
        return False
    return not function.pci_class.startswith(classes.HOST_BRIDGE) or function.driver is None


def _is_of_card(host: Host, function: Function, main: Function) -> bool:
    """Whether a function in the slot of a GPU is part of its card.

    The slot alone does not decide: in an AMD APU the GPU (1002) shares its slot with the processor's own security
    processor, USB controllers and sound (1022). Only a GPU that is no part of the processor has its slot to itself.
    """
    return (
        function.physical_function is None
        and classes.is_card_class(function.pci_class)
        and (function.vendor == main.vendor or not is_integrated(host, main))
    )


def _are_behind_one_card_switch(host: Host, function: Function, main: Function) -> bool:
    """Whether a function is in another slot of the same card: Intel's cards have a PCIe switch for GPU and audio."""
    switch = _card_switch(host, main)
    return switch is not None and not is_gpu(function) and _card_switch(host, function) == switch


def _card_switch(host: Host, function: Function) -> str | None:
    """The upstream port of the switch above a function, where the maker of the function made the switch, too.

    A root port is no such switch: it has no bridge above it.
    """
    port = host.functions.get(function.parent or "")
    switch = host.functions.get(port.parent or "") if port is not None else None
    if port is None or switch is None or switch.parent is None:
        return None
    return switch.address if port.vendor == switch.vendor == function.vendor else None


def is_integrated(host: Host, function: Function) -> bool:
    """Whether a GPU or accelerator is part of the processor: by the catalogue, else by where it is.

    Intel's graphics are always ``00:02.0`` (Linux, ``drivers/vfio/pci/vfio_pci_igd.c``), and its NPU is on bus 0 too.
    AMD's are function 0 of a slot with the processor's own devices; before Zen they were on bus 0, as Zhaoxin's are.
    """
    card = card_of(function)
    if card is not None:
        return card.kind == "integrated"
    slot = function.bdf.slot
    on_bus_0 = slot.startswith("0000:00:")
    if function.vendor == _INTEL:
        return slot == "0000:00:02" or (on_bus_0 and not function.pci_class.startswith(classes.DISPLAY_BASE))
    if function.vendor == _ATI:
        return slot == "0000:00:01" or any(f.vendor == _AMD for f in host.slots[slot])
    return function.vendor == _ZHAOXIN and on_bus_0


def card_of(function: Function) -> catalogue.Card | None:
    """What the catalogue knows of a function's card."""
    return catalogue.lookup(function.vendor, function.product, function.subsystem_vendor, function.subsystem_product)


def displays(host: Host) -> tuple[Function, ...]:
    """The functions that can show the host's console.

    Those are VGA controllers. Display controllers of other kinds have a connector when they are integrated graphics
    beside a VGA controller; otherwise they are accelerators (AMD Instinct). Cards without a connector show nothing,
    whatever their class.
    """
    candidates = (
        f
        for f in host.pci
        if classes.is_display(f.pci_class) and f.physical_function is None and not _has_no_connector(f)
    )
    return tuple(f for f in candidates if classes.is_vga(f.pci_class) or is_integrated(host, f))


def _has_no_connector(function: Function) -> bool:
    card = card_of(function)
    return card is not None and "no-display" in card.quirks

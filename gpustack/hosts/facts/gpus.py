"""GPUs, assembled from PCI functions: the functions of the card, and the other members of its IOMMU group.

vfio accepts an IOMMU group if each member is bound to a vfio driver, has no driver, or is a forwarding bridge
(Linux, ``drivers/vfio``, ``vfio_dev_viable``; ``drivers/iommu/iommu.c``, ``iommu_group_claim_dma_owner``). So gpustack
binds only the functions of the card. The other members of the group belong to the host and are not changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gpustack.hosts.facts.model import Function, Host
from gpustack.pci import catalogue, classes

_INTEL, _ATI, _AMD, _ZHAOXIN = "8086", "1002", "1022", "1d17"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of a host.

    :ivar main: the display, 3D or accelerator function that Nova passes through.
    :ivar companions: the other functions of the card, by address.
    :ivar group: all members of the IOMMU group, shared by its GPUs.
    :ivar virtual: its virtual functions (SR-IOV), by address. Slot and ids can be those of the card, or others.
    """

    main: Function
    companions: tuple[Function, ...] = ()
    group: tuple[Function, ...] = ()
    virtual: tuple[Function, ...] = ()

    @cached_property
    def neighbours(self) -> tuple[Function, ...]:
        """The other members of the IOMMU group, without bridges and the GPU's virtual functions."""
        return tuple(f for f in self._others if not forwards(f))

    @cached_property
    def bridges(self) -> tuple[Function, ...]:
        """The bridges of the IOMMU group."""
        return tuple(filter(forwards, self._others))

    @property
    def _others(self) -> Iterator[Function]:
        return (f for f in self.group if f.address not in self.addresses)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the card, which are bound together."""
        return (self.main, *self.companions)

    @cached_property
    def addresses(self) -> frozenset[str]:
        """The addresses of the card: of its functions, and of its virtual functions."""
        return frozenset(f.address for f in (*self.functions, *self.virtual)) | {*self.main.virtual_functions}

    @property
    def name(self) -> str:
        """The name of the card, from the catalogue, else class and ids."""
        main = self.main
        return catalogue.describe(
            main.vendor, main.product, main.pci_class, main.subsystem_vendor, main.subsystem_product
        )

    @property
    def dev_type(self) -> str:
        """Nova's ``dev_type`` of the GPU: ``type-PCI`` or ``type-PF``."""
        return self.main.dev_type


def gpus(host: Host) -> tuple[Gpu, ...]:
    """The GPUs of a host, by address, without console adapters and virtual functions."""
    return tuple(assemble(host, main) for main in main_functions(host))


def main_functions(host: Host) -> Iterator[Function]:
    """The first GPU function of each slot; a second display function in the slot is a companion."""
    for members in host.slots.values():
        for function in members:
            if is_gpu(function):
                yield function
                break


def is_gpu(function: Function) -> bool:
    """Whether a function is a GPU: by class, and neither a virtual function nor a console adapter."""
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
    """Assemble a GPU or an NVSwitch from its main function: add the companions and the IOMMU group."""
    known: Gpu | None = host.assembled.get(main.address)
    if known is None or known.main is not main:
        known = host.assembled[main.address] = _assemble(host, main)
    return known


def _assemble(host: Host, main: Function) -> Gpu:
    members = host.groups.get(main.iommu_group, ()) if main.iommu_group is not None else ()
    beside = {f.address: f for f in host.slots[main.bdf.slot] if f.address != main.address}
    beside |= {f.address: f for f in _behind_card_switch(host, main) if f.iommu_group == main.iommu_group is not None}
    companions = sorted((f for f in beside.values() if _is_of_card(host, f, main)), key=lambda f: f.bdf)
    card = {main.address, *(f.address for f in companions)}
    virtual = sorted((f for address in card for f in host.virtual.get(address, ())), key=lambda f: f.bdf)
    return Gpu(main=main, companions=tuple(companions), group=members, virtual=tuple(virtual))


def forwards(function: Function) -> bool:
    """Whether vfio ignores a member of a group: PCI-to-PCI bridges, and host bridges without a driver.

    vfio treats a host bridge as an ordinary function, so a host bridge with a driver (EDAC) makes the group unusable.
    """
    if not classes.is_forwarding_bridge(function.pci_class):
        return False
    return not function.pci_class.startswith(classes.HOST_BRIDGE) or function.driver is None


def _is_of_card(host: Host, function: Function, main: Function) -> bool:
    """Whether a function in the slot of a GPU is part of its card.

    The slot alone is not enough: in an AMD APU, the GPU (vendor 1002) shares its slot with the security processor, USB
    controllers and audio of the processor (vendor 1022). Only a discrete GPU has a slot of its own.
    """
    return (
        function.physical_function is None
        and classes.is_card_class(function.pci_class)
        and (function.vendor == main.vendor or not is_integrated(host, main))
    )


def _behind_card_switch(host: Host, main: Function) -> Iterator[Function]:
    """The other functions behind the PCIe switch of a card, without GPUs: on Intel cards, GPU and audio are."""
    switch = _card_switch(host, main)
    for port in host.children.get(switch, ()) if switch is not None else ():
        for function in host.children.get(port.address, ()):
            if not is_gpu(function) and _card_switch(host, function) == switch:
                yield function


def _card_switch(host: Host, function: Function) -> str | None:
    """The upstream port of the PCIe switch above a function; None if there is none, or if the vendors differ.

    A root port is not a switch: it has no bridge above it.
    """
    port = host.functions.get(function.parent or "")
    switch = host.functions.get(port.parent or "") if port is not None else None
    if port is None or switch is None or switch.parent is None:
        return None
    return switch.address if port.vendor == switch.vendor == function.vendor else None


def is_integrated(host: Host, function: Function) -> bool:
    """Whether a GPU or accelerator is part of the processor: by the catalogue, else by its address.

    Intel graphics are always at ``00:02.0`` (Linux, ``drivers/vfio/pci/vfio_pci_igd.c``); Intel's NPU is on bus 0 too.
    AMD graphics share a slot with other devices of the processor; before Zen they were at ``00:01``. Zhaoxin graphics
    are on bus 0.
    """
    if (card := card_of(function)) is not None:
        return card.kind == "integrated"
    slot = function.bdf.slot
    on_bus_0 = slot.startswith("0000:00:")
    if function.vendor == _INTEL:
        return slot == "0000:00:02" or (on_bus_0 and not function.pci_class.startswith(classes.DISPLAY_BASE))
    if function.vendor == _ATI:
        return slot == "0000:00:01" or any(f.vendor == _AMD for f in host.slots[slot])
    return function.vendor == _ZHAOXIN and on_bus_0


def card_of(function: Function) -> catalogue.Card | None:
    """The function's card in the catalogue; None if unknown."""
    return catalogue.lookup(function.vendor, function.product, function.subsystem_vendor, function.subsystem_product)


def displays(host: Host) -> tuple[Function, ...]:
    """The functions that can show the host's console: VGA controllers and integrated graphics.

    Integrated graphics beside a VGA controller have class 0380. Other functions of that class are accelerators without
    a connector (AMD Instinct). Cards with the quirk ``no-display`` are left out, of any class.
    """
    displays = (f for f in host.pci if classes.is_display(f.pci_class) and f.physical_function is None)
    candidates = (f for f in displays if not (card := card_of(f)) or "no-display" not in card.quirks)
    return tuple(f for f in candidates if classes.is_vga(f.pci_class) or is_integrated(host, f))

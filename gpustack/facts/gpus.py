"""GPUs, put together from functions: the main function, its companions, and the closure that binding must cover.

Only a whole IOMMU group can be given to a guest safely: its members can reach one another's memory past the
IOMMU (kernel: ``Documentation/driver-api/vfio.rst``, "Groups, Devices, and IOMMUs"). So a GPU here is its display,
3D or accelerator function together with the functions of its slot and whatever else shares its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustack.facts.model import Function, Host
from gpustack.pci import catalogue, classes


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of a host.

    :ivar main: the display, 3D or accelerator function that Nova will be told of.
    :ivar companions: the other functions of its slot and group, bridges aside, in the order of their addresses.
    :ivar bridges: the bridges of its group: they stay with the host.
    """

    main: Function
    companions: tuple[Function, ...]
    bridges: tuple[Function, ...]

    @property
    def functions(self) -> tuple[Function, ...]:
        """The closure: every function that must leave the host together."""
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
        """How Nova will list it: ``type-PF`` for a function with the SR-IOV capability, even with no VF
        enabled, else ``type-PCI`` (``nova/virt/libvirt/host.py``, ``_get_device_type``)."""
        if self.main.physical_function is not None:
            return "type-VF"
        return "type-PF" if self.main.sriov_totalvfs is not None else "type-PCI"

    def outsiders(self) -> tuple[Function, ...]:
        """Companions that are not of the GPU's own slot: they only share its IOMMU group."""
        return tuple(f for f in self.companions if f.bdf.slot != self.main.bdf.slot)


def gpus(host: Host) -> tuple[Gpu, ...]:
    """The GPUs of a host in the order of their addresses; console chips and virtual functions are none."""
    return tuple(_assemble(host, main) for main in _mains(host))


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
        and not catalogue.is_console(function.vendor, function.product)
    )


def _assemble(host: Host, main: Function) -> Gpu:
    group = host.groups.get(main.iommu_group, ()) if main.iommu_group is not None else ()
    around = {f.address: f for f in (*host.slots[main.bdf.slot], *group) if f.address != main.address}
    ordered = sorted(around.values(), key=lambda f: f.bdf)
    own_vfs = set(main.virtual_functions)
    return Gpu(
        main=main,
        companions=tuple(
            f for f in ordered if not classes.is_forwarding_bridge(f.pci_class) and f.address not in own_vfs
        ),
        bridges=tuple(f for f in ordered if classes.is_forwarding_bridge(f.pci_class)),
    )

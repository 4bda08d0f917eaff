"""The lists of ids that the parameters of vfio-pci and pci-stub take, and which functions a driver takes by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gpustack.facts.model import Function

_ANY = "ffffffff"  # PCI_ANY_ID


@dataclass(frozen=True, kw_only=True)
class Ids:
    """A list of ids that something else hands to vfio-pci or pci-stub.

    Each is ``vendor:device[:subvendor[:subdevice[:class[:class_mask]]]]``, read with ``%x``
    (``drivers/vfio/pci/vfio_pci.c``, ``vfio_pci_fill_ids``; ``drivers/pci/pci-stub.c``).

    :ivar driver: the module, spelt with ``_``.
    :ivar text: the list as it is written.
    """

    driver: str
    text: str
    place: str

    @cached_property
    def _entries(self) -> tuple[tuple[str, ...], ...]:
        entries = self.text.replace('"', "").lower().split(",")
        return tuple(tuple(_digits(field) for field in entry.split(":")) for entry in entries if entry)

    @cached_property
    def ids(self) -> frozenset[str]:
        """Their ``vendor:product`` pairs."""
        return frozenset(":".join(fields[:2]) for fields in self._entries)

    def takes_all(self, functions: Iterable[Function]) -> bool:
        """Whether the driver takes each of the functions whose pair is in the list: narrower ids may leave some out."""
        listed = [function for function in functions if function.ids in self.ids]
        return all(any(_fits(fields, function) for fields in self._entries) for function in listed)


def _digits(field: str) -> str:
    """A field of an id with four digits, as sysfs has it; as it stands when it is no number."""
    try:
        return f"{int(field, 16):04x}"
    except ValueError:
        return field


def _fits(fields: tuple[str, ...], function: Function) -> bool:
    """Whether an id is a function's; what is left out or ``ffffffff`` is any, and so is a class without a mask."""
    vendor, product, *narrower = fields if len(fields) > 1 else (*fields, "")
    subsystem = (function.subsystem_vendor, function.subsystem_product)
    if (vendor, product) != (function.vendor, function.product):
        return False
    if any(wanted not in (_ANY, actual) for wanted, actual in zip(narrower[:2], subsystem, strict=False)):
        return False
    try:
        pci_class, mask = (int(field, 16) for field in (*narrower[2:4], "0", "0")[:2])
    except ValueError:
        return False
    return (int(function.pci_class, 16) ^ pci_class) & mask == 0

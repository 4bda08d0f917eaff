"""Lists of PCI ids in the parameter ``ids`` of vfio-pci and pci-stub, and the functions that match them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gpustack.facts.model import Function

_ANY = "ffffffff"  # PCI_ANY_ID


@dataclass(frozen=True, kw_only=True)
class Ids:
    """A list of ids for vfio-pci or pci-stub in configuration that is not gpustack's.

    Format of an id: ``vendor:device[:subvendor[:subdevice[:class[:class_mask]]]]``, hexadecimal
    (``drivers/vfio/pci/vfio_pci.c``, ``vfio_pci_fill_ids``; ``drivers/pci/pci-stub.c``).

    :ivar driver: the module, with ``_``.
    :ivar text: the unparsed list.
    :ivar place: file and line, for messages.
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
        """The ``vendor:product`` pairs of the list."""
        return frozenset(":".join(fields[:2]) for fields in self._entries)

    def takes_all(self, functions: Iterable[Function]) -> bool:
        """Whether the list matches each function whose pair is in it; ids with more fields may exclude some."""
        listed = [function for function in functions if function.ids in self.ids]
        return all(any(_fits(fields, function) for fields in self._entries) for function in listed)


def _digits(field: str) -> str:
    """Pad a field of an id to four digits, as in sysfs; unchanged if it is not a number."""
    try:
        return f"{int(field, 16):04x}"
    except ValueError:
        return field


def _fits(fields: tuple[str, ...], function: Function) -> bool:
    """Whether an id matches a function.

    A missing or ``ffffffff`` subsystem field matches any value, and so does a class without a mask.
    """
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

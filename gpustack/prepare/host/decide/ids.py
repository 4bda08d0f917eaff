"""Lists of PCI ids in the parameter ``ids`` of vfio-pci and pci-stub, and the functions that match them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from gpustack.hosts.facts.model import Function

_ANY = "ffffffff"  # PCI_ANY_ID: matches in each of the first four fields (drivers/pci/pci.h, pci_match_one_device)
_NUMBER = re.compile(r"[0-9a-f]+")


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

    def binds(self, function: Function) -> bool:
        """Whether the driver may bind a function. Unknown subsystem ids match."""
        return any(_fits(fields, function, unknown=True) for fields in self._entries)

    def concerns(self, functions: Iterable[Function]) -> bool:
        """Whether the pair of a function is in the list, or the driver may bind a function."""
        return any(function.ids in self.ids or self.binds(function) for function in functions)

    def takes_all(self, functions: Iterable[Function]) -> bool:
        """Whether the list matches each function whose pair is in it; ids with more fields may exclude some."""
        listed = [function for function in functions if function.ids in self.ids]
        return all(any(_fits(fields, function, unknown=False) for fields in self._entries) for function in listed)


def _digits(field: str) -> str:
    """Pad a field of an id to four digits, as in sysfs; unchanged if it is not a number."""
    try:
        return f"{int(field, 16):04x}"
    except ValueError:
        return field


def _fits(fields: tuple[str, ...], function: Function, *, unknown: bool) -> bool:
    """Whether an id matches a function.

    A missing subsystem field matches any value, and so does a class without a mask.

    :param unknown: whether an unknown subsystem id matches, and a field that is not a number ends the id.
    """
    vendor, product, *narrower = fields if len(fields) > 1 else (*fields, "")
    if vendor not in (_ANY, function.vendor) or product not in (_ANY, function.product):
        return False
    if unknown:
        narrower = list(takewhile(_NUMBER.fullmatch, narrower))
    for wanted, actual in zip(narrower, (function.subsystem_vendor, function.subsystem_product), strict=False):
        if wanted not in (_ANY, actual) and not (unknown and actual is None):
            return False
    try:
        pci_class, mask = (int(field, 16) for field in (*narrower[2:4], "0", "0")[:2])
    except ValueError:
        return False
    return (int(function.pci_class, 16) ^ pci_class) & mask == 0

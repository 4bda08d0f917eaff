"""Binding by address: what stood at each address when the host was planned, and what became of it at boot.

An id is taken wherever it turns up, so a function whose id a device of the host has, too, is bound by its address:
a script in the initramfs sets its ``driver_override`` before udev loads a driver for anything. Addresses move when
cards or firmware change, so the script names what it expects at each, and leaves anything else alone. Where a host
driver is built into a kernel, the script unbinds it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from gpustack.facts.model import Function, Host
from gpustack.host.own_files import SCRIPTS

RECORD = "/run/gpustack/devices"
"""What the script did in the running system's boot: a line for each device."""
UNKNOWN = "-"
_LINE = re.compile(r"keep (\S+) (\S+) (\S+) (\S+) (\S+) (\S+) (\S+)( take)?")
_KEPT = re.compile(r"(\S+) is kept for (\S+)")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A function that is bound by its address, and what identifies it; ``-`` where that is not known.

    :ivar is_taken: whether a host driver that is built into a kernel loses it.
    """

    address: str
    driver: str
    vendor: str
    product: str
    subsystem_vendor: str
    subsystem_product: str
    pci_class: str
    is_taken: bool = False

    @classmethod
    def of(cls, function: Function, driver: str, *, is_taken: bool = False) -> Self:
        """A function as it stands now."""
        return cls(
            address=function.address,
            driver=driver,
            vendor=function.vendor,
            product=function.product,
            subsystem_vendor=function.subsystem_vendor or UNKNOWN,
            subsystem_product=function.subsystem_product or UNKNOWN,
            pci_class=function.pci_class,
            is_taken=is_taken,
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the script for it."""
        return (self.address, self.driver, *self._ids, *(("take",) if self.is_taken else ()))

    @property
    def _ids(self) -> tuple[str, ...]:
        return (self.vendor, self.product, self.subsystem_vendor, self.subsystem_product, self.pci_class)

    def stranger(self, host: Host) -> str | None:
        """What stands at the address in place of this function, or None when it is the expected one."""
        device = host.functions.get(self.address)
        if device is None:
            return "nothing"
        current = Listed.of(device, self.driver)
        pairs = zip(self._ids, current._ids, strict=True)
        if all(UNKNOWN in pair or pair[0] == pair[1] for pair in pairs):
            return None
        return current.identity

    @property
    def identity(self) -> str:
        """What identifies it, for people: ``10de:11b4 (subsystem 10de:1096, class 030000)``."""
        subsystem = f"subsystem {self.subsystem_vendor}:{self.subsystem_product}, "
        return f"{self.vendor}:{self.product} ({subsystem if UNKNOWN not in subsystem else ''}class {self.pci_class})"


def listed(host: Host) -> Iterator[Listed]:
    """The functions that the script on the host lists, which may be of an earlier plan."""
    lines = [line for path in SCRIPTS if path in host.files for line in host.files[path].text.splitlines()]
    for line in lines:
        if (match := _LINE.fullmatch(line)) is not None:
            names = ("address", "driver", "vendor", "product", "subsystem_vendor", "subsystem_product", "pci_class")
            *values, mark = match.groups()
            yield Listed(**dict(zip(names, values, strict=True)), is_taken=mark is not None)


def kept_at_boot(host: Host) -> dict[str, str]:
    """The drivers that the script gave at the boot of the running system, by address."""
    file = host.files.get(RECORD)
    lines = file.text.splitlines() if file is not None else ()
    return {match[1]: match[2] for line in lines if (match := _KEPT.fullmatch(line)) is not None}

"""Binding by address: the functions that the initramfs script lists, and the result of the script at boot.

A driver binds an id on all devices that have it. If a device of the host has the same id, the function is bound by its
address instead: a script in the initramfs sets ``driver_override`` before udev loads drivers. Addresses change with
cards and firmware, so the script lists the expected identity of each device, and skips any other device. If a host
driver is built into the kernel, the script unbinds it first.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from gpustack.hosts.facts.model import Function, Host
from gpustack.prepare.host.own_files import SCRIPTS

RECORD = "/run/gpustack/devices"
"""The script's log of the last boot: one line per device."""
UNKNOWN = "-"
_IDS = ("vendor", "product", "subsystem_vendor", "subsystem_product", "pci_class")
_LINE = re.compile(r"keep (\S+) (\S+) (\S+) (\S+) (\S+) (\S+) (\S+)( take)?")
_KEPT = re.compile(r"(\S+) is kept for (\S+)")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A function that is bound by address, and its expected identity; unknown ids are ``-``.

    :ivar driver: the driver to bind.
    :ivar is_taken: whether the script unbinds it from a built-in host driver first.
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
        """The identity of a function in the facts."""
        ids = {name: getattr(function, name) or UNKNOWN for name in _IDS}
        return cls(address=function.address, driver=driver, is_taken=is_taken, **ids)

    @property
    def words(self) -> tuple[str, ...]:
        """The function's arguments in the script."""
        return (self.address, self.driver, *self._ids, *(("take",) if self.is_taken else ()))

    @property
    def _ids(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in _IDS)

    def stranger(self, host: Host) -> str | None:
        """The identity of another device at the address, or ``nothing``; None if the expected device is there."""
        if (device := host.functions.get(self.address)) is None:
            return "nothing"
        current = Listed.of(device, self.driver)
        pairs = zip(self._ids, current._ids, strict=True)
        return None if all(UNKNOWN in pair or pair[0] == pair[1] for pair in pairs) else current.identity

    @property
    def identity(self) -> str:
        """The identity for messages: ``10de:11b4 (subsystem 10de:1096, class 030000)``."""
        subsystem = f"subsystem {self.subsystem_vendor}:{self.subsystem_product}, "
        return f"{self.vendor}:{self.product} ({subsystem if UNKNOWN not in subsystem else ''}class {self.pci_class})"


def listed(host: Host) -> Iterator[Listed]:
    """The functions in the script that is on the host; an earlier plan may have written it."""
    lines = [line for path in SCRIPTS if path in host.files for line in host.files[path].text.splitlines()]
    for line in lines:
        if (match := _LINE.fullmatch(line)) is not None:
            *values, mark = match.groups()
            yield Listed(**dict(zip(("address", "driver", *_IDS), values, strict=True)), is_taken=mark is not None)


def kept_at_boot(host: Host) -> dict[str, str]:
    """The drivers that the script assigned at the last boot, by address."""
    lines = host.text(RECORD).splitlines()
    return {match[1]: match[2] for line in lines if (match := _KEPT.fullmatch(line)) is not None}

"""Match PCI functions with entries of ``[pci] device_spec`` by the rules of Nova's ``nova/pci/devspec.py``.

The check of a rendered device_spec and the linter use it; a test compares it with Nova's own class. Where Nova would
read ``/sys`` (is this address a physical function, which address has this interface), the host's facts are used.

Two rules of Nova are omitted; both err towards "it matches": Nova ignores a VF with ``remote_managed`` that has no
serial number, and Nova refuses addresses in domains above ffff.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpustack.base.findings import Code
from gpustack.hosts.facts.model import Function, Host
from gpustack.nova_options.pci_values import BOOLEANS, EntryError, specs_of

ANY = "*"
_LIMITS = {"domain": 0xFFFF, "bus": 0xFF, "slot": 0x1F, "function": 0x7, "vendor_id": 0xFFFF, "product_id": 0xFFFF}
_WIDTHS = {"domain": 4, "bus": 2, "slot": 2, "function": 1, "vendor_id": 4, "product_id": 4}
ADDRESS_FIELDS = ("domain", "bus", "slot", "function")
NORMALISED = ("managed", "live_migratable", "one_time_use")
"""Tags that must be boolean words, in the releases that know them (``_normalize_device_spec_tag``)."""


@dataclass(frozen=True, kw_only=True)
class AddressPattern:
    """An address of a device_spec: four fields, each a value, ``*``, or (``regex``) a pattern for :func:`re.match`."""

    domain: str = ANY
    bus: str = ANY
    slot: str = ANY
    function: str = ANY
    regex: bool = False

    @property
    def fields(self) -> tuple[str, str, str, str]:
        return (self.domain, self.bus, self.slot, self.function)

    @property
    def is_everything(self) -> bool:
        """Whether it matches every address."""
        return all(value in ((".*", "") if self.regex else (ANY,)) for value in self.fields)

    @property
    def is_single(self) -> bool:
        """Whether Nova treats it as a single address, and checks whether that is a physical function."""
        return all(all(c in string.hexdigits for c in value) for value in self.fields)

    @property
    def text(self) -> str:
        """The address in the notation of sysfs."""
        return f"{self.domain}:{self.bus}:{self.slot}.{self.function}"

    def in_capitals(self) -> Iterator[str]:
        """The patterns that would match more numbers if the kernel wrote them in capital letters."""
        for name, value in zip(ADDRESS_FIELDS, self.fields, strict=True) if self.regex else ():
            digits = (f"{n:0{_WIDTHS[name]}x}" for n in range(_LIMITS[name] + 1) if re.search("[A-F]", value))
            if any(re.match(value, text, re.IGNORECASE) and not re.match(value, text) for text in digits):
                yield value

    def fits(self, address: str) -> bool:
        """Whether it matches the address of a function."""
        actual = _split(address)
        if self.regex:
            return all(re.match(want, have) is not None for want, have in zip(self.fields, actual, strict=True))
        return all(want in (ANY, have) for want, have in zip(self.fields, actual, strict=True))


@dataclass(frozen=True, kw_only=True)
class DeviceSpec:
    """One parsed entry. A missing field matches everything."""

    vendor_id: str = ANY
    product_id: str = ANY
    address: AddressPattern = field(default_factory=AddressPattern)
    devname: str | None = None

    @classmethod
    def parse(cls, entry: Mapping[str, Any], *, booleans: Collection[str] = NORMALISED) -> DeviceSpec:
        """Parse an entry as Nova does.

        :param booleans: the tags that the release requires to be boolean words.
        :raises ValueError: when Nova refuses the entry; the message is the reason.
        """
        tags = dict(entry)
        vendor = _hexadecimal("vendor_id", tags.pop("vendor_id", ANY), strip=True)
        product = _hexadecimal("product_id", tags.pop("product_id", ANY))
        devname = tags.pop("devname", None)
        address = tags.pop("address", None)
        if address and devname:
            raise ValueError("address and devname exclude each other")
        for tag in booleans:
            value = tags.get(tag)
            if value is not None and str(value).strip().lower() not in BOOLEANS:
                raise ValueError(f"{tag} must be yes or no (or another boolean word), not {value!r}")
        return cls(
            vendor_id=vendor,
            product_id=product,
            address=_address(address) if address and not devname else AddressPattern(),
            devname=devname or None,
        )

    @property
    def is_everything(self) -> bool:
        """Whether it matches every function of a host."""
        return self.vendor_id == self.product_id == ANY and not self.devname and self.address.is_everything

    def matches(self, function: Function, host: Host) -> bool:
        """Whether Nova would offer ``function`` of ``host`` to instances because of this entry."""
        pattern, device = self.address, None
        if self.devname:
            device = next((f for f in host.pci if any(net.name == self.devname for net in f.uses.net)), None)
            if device is None:
                return False
            domain, bus, slot, number = _split(device.address)
            pattern = AddressPattern(domain=domain, bus=bus, slot=slot, function=number)
        elif pattern.is_single:
            device = host.functions.get(pattern.text)
        card = function.physical_function if device and device.sriov_totalvfs else None
        return (
            self.vendor_id in (ANY, function.vendor)
            and self.product_id in (ANY, function.product)
            and (pattern.fits(function.address) or (card is not None and pattern.fits(card)))
        )


def parse_line(text: str) -> list[DeviceSpec]:
    """The entries of one line of device_spec.

    :raises EntryError: when Nova refuses the line or an entry; the message is the reason.
    """
    entries = specs_of(text)
    try:
        return [DeviceSpec.parse(entry) for entry in entries]
    except ValueError as error:
        raise EntryError(error, Code.VALUE_INVALID) from error


def matched(specs: Sequence[DeviceSpec], host: Host) -> dict[str, int]:
    """The functions of a host that Nova would offer to instances: address, and index of the first matching entry."""
    entry_by_address: dict[str, int] = {}
    for function in sorted(host.pci, key=lambda f: f.bdf):
        for index, spec in enumerate(specs):
            if spec.matches(function, host):
                entry_by_address[function.address] = index
                break
    return entry_by_address


def _split(address: str) -> tuple[str, str, str, str]:
    slots, _, function = address.partition(".")
    domain, bus, slot = slots.split(":")
    return domain, bus, slot, function


def _hexadecimal(name: str, value: object, *, strip: bool = False) -> str:
    """A field in the kernel's notation. Nova accepts whatever Python's ``int(…, 16)`` accepts."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text in double quotes, not {value!r}")  # noqa: TRY004 - one kind of refusal
    text = value.strip() if strip else value
    if text == ANY:
        return ANY
    try:
        number = int(text, 16)
    except ValueError:
        raise ValueError(f"{name} {value!r} is no hexadecimal number") from None
    if number > _LIMITS[name]:
        raise ValueError(f"{name} {value!r} is greater than {_LIMITS[name]:X}")
    return f"{number:0{_WIDTHS[name]}x}"


def _address(value: object) -> AddressPattern:
    if isinstance(value, str):
        return _glob(value)
    if isinstance(value, dict):
        return _regex(value)
    raise ValueError(f"address must be text or an object, not {value!r}")


def _glob(text: str) -> AddressPattern:
    """``[[[domain:]bus:]slot][.function]``; an omitted part matches everything."""
    slots, _, function = text.partition(".")
    parts = slots.split(":") if slots else []
    if len(parts) > 3:
        raise ValueError(f"address {text!r} has more than three parts before the dot")
    filled = [ANY] * (3 - len(parts)) + [part.strip() or ANY for part in parts]
    patterns = [*filled, function.strip() if function else ANY]
    domain, bus, slot, func = (_hexadecimal(name, value) for name, value in zip(ADDRESS_FIELDS, patterns, strict=True))
    return AddressPattern(domain=domain, bus=bus, slot=slot, function=func)


def _regex(parts: Mapping[str, Any]) -> AddressPattern:
    values = {name: parts.get(name, ".*") for name in ADDRESS_FIELDS}
    for name, value in values.items():
        if not isinstance(value, str):
            raise ValueError(f"address: {name} must be text, not {value!r}")  # noqa: TRY004 - one kind of refusal
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"address: {name} {value!r} is no regular expression ({error})") from None
    return AddressPattern(**values, regex=True)


def offered(specs: Iterable[DeviceSpec], host: Host) -> frozenset[str]:
    """The addresses that Nova would offer to instances."""
    return frozenset(matched(tuple(specs), host))

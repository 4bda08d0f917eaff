"""PCI addresses in sysfs."""

from typing import Optional, Tuple

from .limits import ADDRESS

PCI = "/sys/bus/pci/devices"


def address_key(address: str) -> Tuple[int, int, int, int]:
    """Numeric sort key of an address."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def last_address(path: str) -> Optional[str]:
    """The last PCI address in a sysfs path, which is the innermost function."""
    for part in reversed(path.split("/")):
        if ADDRESS.fullmatch(part):
            return part
    return None

"""PCI addresses (BDF): ``domain:bus:device.function``, in the kernel's sysfs notation.

The domain has four or more hexadecimal digits: the kernel prints an ``int`` with ``%04x``
(``include/linux/pci.h``, ``pci_name``; Intel VMD domains start at ``0x10000``). Nova stores at most twelve
characters (``pci_devices.address varchar(12)``), so a function in a wider domain can't be passed through.
"""

import re
from dataclasses import dataclass
from typing import Self

_BDF = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[01][0-9a-f])\.(?P<function>[0-7])",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, order=True)
class Address:
    """A PCI address (BDF); addresses sort numerically."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``0000:88:00.0``, or ``88:00.0`` as ``lspci`` prints it (domain 0).

        :raises ValueError: if ``text`` is not a PCI address.
        """
        if (match := _BDF.fullmatch(text)) is None:
            raise ValueError(f"{text!r} is not a PCI address (expected domain:bus:device.function, 0000:88:00.0)")
        fields = match.groupdict(default="0")
        return cls(*(int(fields[name], 16) for name in ("domain", "bus", "device", "function")))

    def __str__(self) -> str:
        return f"{self.slot}.{self.function:x}"

    @property
    def slot(self) -> str:
        """Domain, bus and device, without the function: ``0000:88:00``."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}"

    @property
    def fits_nova(self) -> bool:
        """Whether Nova can store the address: ``nova/pci/manager.py`` skips devices of domains above ffff."""
        return self.domain <= 0xFFFF

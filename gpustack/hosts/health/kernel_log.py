"""What the kernel's messages report about a device: failed resets, stuck power states, IOMMU faults.

The texts are those of drivers/pci/pci.c (``pci_dev_wait``, ``pci_power_up``), drivers/iommu/intel/dmar.c
(``dmar_fault_do_one``) and drivers/iommu/amd/iommu.c (``amd_iommu_report_page_fault``, ``iommu_print_event``).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpustack.pci.address import Address


class Sign(enum.Enum):
    """A kind of message."""

    RESET_FAILED = "reset failed"
    POWER_STATE_STUCK = "power state stuck"
    IOMMU_FAULT = "IOMMU fault"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One message about a device."""

    sign: Sign
    address: str
    message: str


_ADDRESS = r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])"
_SIGNS = (
    # "waiting" precedes it, and is no failure: the device became ready in time.
    (Sign.RESET_FAILED, re.compile(rf"\b{_ADDRESS}: not ready [0-9]+ms after .+; giving up")),
    (Sign.POWER_STATE_STUCK, re.compile(rf"\b{_ADDRESS}: .*(?:can't|[Uu]nable to) change power state")),
    (Sign.IOMMU_FAULT, re.compile(rf"DMAR: .*Request device \[{_ADDRESS}\]")),
    (Sign.IOMMU_FAULT, re.compile(rf"Event logged \[IO_PAGE_FAULT device={_ADDRESS}")),
    (Sign.IOMMU_FAULT, re.compile(rf"\b{_ADDRESS}: AMD-Vi: Event logged \[IO_PAGE_FAULT")),
)


def events(messages: Iterable[str]) -> Iterator[Event]:
    """Yield the messages about single devices."""
    for message in messages:
        for sign, pattern in _SIGNS:
            if match := pattern.search(message):
                yield Event(sign=sign, address=str(Address.parse(match[1])), message=message)
                break

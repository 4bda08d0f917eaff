"""A line that somebody wrote by hand for devices of the plan."""

from __future__ import annotations

import enum
from dataclasses import dataclass

PASSTHROUGH = frozenset({"vfio", "vfio_pci", "vfio_iommu_type1", "vfio_virqfd", "vfio_pci_core", "pci_stub"})
"""The modules that only passthrough needs."""


class Part(enum.Enum):
    """How much of a line (or file) a trace is, which decides how it is taken out."""

    LINE = "line"
    COMMAND = "command"
    ARGUMENT = "argument"
    OPTION = "option"
    FILE = "file"


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A line that somebody wrote for the devices of the plan.

    :ivar line: counted from 1; 0 for a file as a whole.
    :ivar said: what stands there: the line, or the argument on it.
    :ivar agrees: whether it says what the plan says.
    :ivar stays: why it can't be taken over; None when it can.
    """

    path: str
    line: int
    said: str
    part: Part
    agrees: bool
    stays: str | None = None

    @property
    def place(self) -> str:
        """``/etc/modprobe.d/vfio.conf:2``."""
        return f"{self.path}:{self.line}" if self.line else self.path

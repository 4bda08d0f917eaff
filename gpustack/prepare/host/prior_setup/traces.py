"""The model of hand-made configuration."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from gpustack.base.text import listed
from gpustack.hosts.facts.model import Function

PASSTHROUGH = frozenset({"vfio", "vfio_pci", "vfio_iommu_type1", "vfio_virqfd", "vfio_pci_core", "pci_stub"})
"""Modules that are used only for passthrough."""

_SHOWN = 4


class Part(enum.Enum):
    """The part of a line or file that a trace covers, which decides how it is removed."""

    LINE = "line"
    COMMAND = "command"
    ARGUMENT = "argument"
    OPTION = "option"
    FILE = "file"


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A hand-made line that concerns devices of the plan.

    :ivar line: from 1; 0 for a complete file.
    :ivar said: the text: the line, or the argument on it.
    :ivar agrees: whether it has the same effect as the plan.
    :ivar stays: why it can't be adopted; None if it can.
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


def binds_others(functions: Iterable[Function]) -> str | None:
    """Why a line that also binds these functions of the host can't be adopted; None if there are none."""
    if not (names := [f"{function.address} ({function.ids})" for function in functions]):
        return None
    return f"it also binds {listed(names, _SHOWN)}, which the spec does not name"

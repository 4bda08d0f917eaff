"""The scope of a plan, so that a plan without verdicts differs from a plan that read nothing."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpustack.base.operations import counted
from gpustack.repair.verdict import Status


@dataclass(kw_only=True)
class Checked:
    """The rows that were read and the classes that were checked.

    :ivar classes: the letters of the classes that were checked.
    :ivar cells: the names of the cells that could be read.
    :ivar hosts: (cell, host) of each compute node that was read.
    :ivar devices: the number of live rows of ``pci_devices``.
    """

    classes: frozenset[str] = frozenset()
    cells: list[str] = field(default_factory=list)
    hosts: set[tuple[str, str | None]] = field(default_factory=set)
    devices: int = 0

    def add(self, cell: str, host: str | None, devices: int) -> None:
        self.hosts.add((cell, host))
        self.devices += devices

    def keys(self) -> Iterator[tuple[str, str, str]]:
        """Yield every combination of cell, class and status for which a verdict is possible."""
        return itertools.product(self.cells, self.classes, [status.value for status in Status])

    def __str__(self) -> str:
        counts = {"cell": len(self.cells), "host": len(self.hosts), "device": self.devices}
        return ", ".join(counted(count, noun) for noun, count in counts.items()) + " checked"

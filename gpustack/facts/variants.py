"""VFIO variant drivers: drivers of the kernel that take a device for guests as vfio-pci does, and know more of it.

A variant names its devices in ``modules.alias`` with ``vfio_pci:`` in the place of ``pci:`` (Linux,
``include/linux/mod_devicetable.h``, ``PCI_ID_F_VFIO_DRIVER_OVERRIDE``), and takes a device only when
``driver_override`` names it. Of several that match, the best is the one whose alias has the fewest wildcards: what
libvirt (``virPCIDeviceFindBestVFIOVariant``) and the kernel's documentation (``drivers/vfio/pci``, help of the
variants) have management software do.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from gpustack.facts.model import BootKernel, Function, Host

PLAIN = "vfio_pci"
_PREFIX = "vfio_pci:"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The variants that the kernels of a host have for a function.

    :ivar by_kernel: the best module of each kernel that can boot, by release; ``vfio_pci`` where there is no variant.
    """

    by_kernel: tuple[tuple[str, str], ...]

    @property
    def module(self) -> str | None:
        """The variant that every kernel takes for the best; None when one has none, or another."""
        modules = {module for _, module in self.by_kernel}
        return modules.pop() if len(modules) == 1 and PLAIN not in modules else None

    @property
    def is_mixed(self) -> bool:
        """Whether some kernels have a variant and others have none, or another."""
        return len({module for _, module in self.by_kernel}) > 1


def choice(host: Host, function: Function) -> Choice:
    """What the kernels of a host would take a function with."""
    return Choice(by_kernel=tuple((kernel.release, best(kernel, function)) for kernel in host.boot.kernels))


def best(kernel: BootKernel, function: Function) -> str:
    """The module of a kernel that matches a function best; ``vfio_pci`` when no variant does."""
    if function.modalias is None or not function.modalias.startswith("pci:"):
        return PLAIN
    name = function.modalias.removeprefix("pci:")
    fitting = [
        (alias.pattern.count("*"), alias.module)
        for alias in kernel.vfio_aliases
        if alias.module in kernel.modules and fnmatch.fnmatchcase(name, alias.pattern.removeprefix(_PREFIX))
    ]
    # Of two that are as good the first in the alphabet: the same in every run.
    return min(fitting)[1] if fitting else PLAIN

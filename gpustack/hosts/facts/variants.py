"""VFIO variant drivers: device-specific replacements of vfio-pci (nvgrace_gpu_vfio_pci, mlx5_vfio_pci).

In ``modules.alias``, the aliases of a variant start with ``vfio_pci:`` instead of ``pci:`` (Linux,
``include/linux/mod_devicetable.h``, ``PCI_ID_F_VFIO_DRIVER_OVERRIDE``). A variant binds a device only if
``driver_override`` names the variant. If several variants match, the one whose alias has the fewest wildcards is the
best: libvirt does this (``virPCIDeviceFindBestVFIOVariant``), and the kernel's documentation recommends it
(``drivers/vfio/pci``, help of the variants).
"""

import fnmatch
from dataclasses import dataclass

from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.model import Function, Host

PLAIN = "vfio_pci"
_PREFIX = "vfio_pci:"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best driver for a function in each bootable kernel of a host.

    :ivar by_kernel: pairs of kernel release and module; ``vfio_pci`` if the kernel has no matching variant.
    """

    by_kernel: tuple[tuple[str, str], ...]

    @property
    def module(self) -> str | None:
        """The variant that is the best in all kernels; None if kernels differ or have no variant."""
        modules = {module for _, module in self.by_kernel}
        return modules.pop() if len(modules) == 1 and PLAIN not in modules else None

    @property
    def is_mixed(self) -> bool:
        """Whether the best driver differs between kernels."""
        return len({module for _, module in self.by_kernel}) > 1


def choice(host: Host, function: Function) -> Choice:
    """The best driver for ``function`` in each bootable kernel of ``host``."""
    return Choice(by_kernel=tuple((kernel.release, best(kernel, function)) for kernel in host.boot.kernels))


def best(kernel: BootKernel, function: Function) -> str:
    """The variant module of a kernel with the best match for ``function``; ``vfio_pci`` if none matches."""
    if function.modalias is None or not function.modalias.startswith("pci:"):
        return PLAIN
    name = function.modalias.removeprefix("pci:")
    fitting = [
        (alias.pattern.count("*"), alias.module)
        for alias in kernel.vfio_aliases
        if alias.module in kernel.modules and fnmatch.fnmatchcase(name, alias.pattern.removeprefix(_PREFIX))
    ]
    # A tie is resolved alphabetically, so that the result is deterministic.
    return min(fitting)[1] if fitting else PLAIN

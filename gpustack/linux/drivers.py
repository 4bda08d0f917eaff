"""Which kernel drivers hold a PCI function for passthrough, and which use it for the host.

:mod:`gpustack.facts.collector.open_by` asks the same on the hosts themselves, where it can't import this module; a test
compares the answers.
"""

from __future__ import annotations

from gpustack.linux.cmdline import canonical

VFIO, STUB = "vfio-pci", "pci-stub"
BY_ID = (VFIO, STUB)
"""The drivers that take functions by their ids; VFIO variant drivers take them by address only."""
IDS_ARGUMENTS = tuple(f"{driver}.ids" for driver in BY_ID)
"""The kernel parameters that list a driver's ids where it is built into the kernel."""


def is_passthrough_driver(driver: str | None) -> bool:
    """Whether a driver holds functions for passthrough: vfio-pci, its variants (``mlx5_vfio_pci``), pci-stub.

    A variant driver registers with vfio's core as vfio-pci does, and is called ``*_vfio_pci`` throughout the kernel
    (``drivers/vfio/pci``).
    """
    name = canonical(driver or "")
    return name == "pci_stub" or name.startswith("vfio") or name.endswith("vfio_pci")


def is_host_driver(driver: str | None) -> bool:
    """Whether a driver works for the host; ``pcieport`` only forwards, so it does not count."""
    return driver is not None and driver != "pcieport" and not is_passthrough_driver(driver)


def is_held(driver: str | None, assigned: str) -> bool:
    """Whether a function on ``driver`` is bound as assigned.

    Before an instance starts, libvirt moves a managed device from pci-stub to vfio-pci, so both are right there
    (libvirt, ``virHostdevPreparePCIDevices``).
    """
    current = canonical(driver or "")
    return current == canonical(assigned) or (assigned == STUB and current == canonical(VFIO))

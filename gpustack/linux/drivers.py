"""Classify kernel drivers: passthrough drivers, which hold a PCI function for passthrough, and host drivers.

:mod:`gpustack.hosts.facts.collector.open_by` has the same classification, because it runs on hosts and can't import
this module. A test compares them.
"""

from gpustack.linux.cmdline import canonical

VFIO, STUB = "vfio-pci", "pci-stub"
BY_ID = (VFIO, STUB)
"""The drivers that can bind by PCI id; VFIO variant drivers bind only via ``driver_override``."""
IDS_ARGUMENTS = tuple(f"{driver}.ids" for driver in BY_ID)
"""The kernel parameters for the ids of each of these drivers, if it is built into the kernel."""


def is_passthrough_driver(driver: str | None) -> bool:
    """Whether a driver holds functions for passthrough: vfio-pci, its variants (``mlx5_vfio_pci``), pci-stub.

    All variants in the kernel are named ``*_vfio_pci`` (``drivers/vfio/pci``).
    """
    name = canonical(driver or "")
    return name == "pci_stub" or name.startswith("vfio") or name.endswith("vfio_pci")


def is_host_driver(driver: str | None) -> bool:
    """Whether a driver makes a function a device of the host; ``pcieport`` does not, and None is no driver."""
    return driver is not None and driver != "pcieport" and not is_passthrough_driver(driver)


def is_held(driver: str | None, assigned: str) -> bool:
    """Whether a function that is bound to ``driver`` has its assigned driver.

    If pci-stub is assigned, vfio-pci is correct too: libvirt rebinds a managed device from pci-stub to vfio-pci before
    an instance starts (``virHostdevPreparePCIDevices``).
    """
    current = canonical(driver or "")
    return current == canonical(assigned) or (assigned == STUB and current == canonical(VFIO))

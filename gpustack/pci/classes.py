"""PCI class codes that matter for passthrough (PCI Code and ID Assignment Specification; kernel: ``pci_ids.h``).

A class is six hexadecimal digits: base class, subclass, programming interface.
"""

from gpustack.base.files import data_table

DISPLAY_BASE = "03"
_VGA, _THREE_D = "0300", "0302"
ACCELERATOR = "1200"
NETWORK_BASE = "02"
STORAGE_BASE = "01"
HOST_BRIDGE = "0600"
MULTIMEDIA_BASE = "04"
USB_CONTROLLER = "0c03"
# The GPU itself, its audio function, and the USB controller and UCSI function ("other serial bus") of a USB-C port.
_CARD_CLASSES = (DISPLAY_BASE, ACCELERATOR, MULTIMEDIA_BASE, USB_CONTROLLER, "0c80")
# vfio ignores these bridges when it checks whether a group is viable: they have no driver, or pcieport, which does not
# use the DMA API (kernel: drivers/pci/pcie/portdrv.c, driver_managed_dma).
_FORWARDING_BRIDGES = (HOST_BRIDGE, "0604", "0609")


def is_gpu_class(pci_class: str) -> bool:
    """Whether a class is a display controller of any kind (03xx) or a processing accelerator (1200)."""
    return pci_class.startswith((DISPLAY_BASE, ACCELERATOR))


def is_vga(pci_class: str) -> bool:
    """Whether a class is a VGA controller; the kernel picks the boot display from these (``drivers/pci/vgaarb.c``)."""
    return pci_class.startswith(_VGA)


def is_display(pci_class: str) -> bool:
    """Whether a class is a display controller that usually has a connector: all but 3D controllers (0302)."""
    return pci_class.startswith(DISPLAY_BASE) and not pci_class.startswith(_THREE_D)


def is_card_class(pci_class: str) -> bool:
    """Whether a function of this class can be part of a graphics card."""
    return pci_class.startswith(_CARD_CLASSES)


def is_controller(pci_class: str) -> bool:
    """Whether a class is a network or storage controller; a host that loses one may lose its network or disks."""
    return pci_class.startswith((NETWORK_BASE, STORAGE_BASE))


def is_forwarding_bridge(pci_class: str) -> bool:
    """Whether a class is a host or PCI-to-PCI bridge; these stay with the host when their group is passed through."""
    return pci_class.startswith(_FORWARDING_BRIDGES)


def word(pci_class: str) -> str:
    """The name of a class for messages: ``3D controller``."""
    names = data_table("pci_classes.toml")
    return names.get(pci_class[:4]) or names.get(pci_class[:2]) or f"device of class {pci_class[:4]}"

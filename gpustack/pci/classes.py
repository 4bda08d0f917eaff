"""PCI class codes, as far as passthrough cares (PCI Code and ID Assignment Specification; kernel: ``pci_ids.h``).

A class is six hexadecimal digits: base class, subclass, programming interface.
"""

from __future__ import annotations

DISPLAY_BASE = "03"
_VGA, _THREE_D = "0300", "0302"
ACCELERATOR = "1200"
NETWORK_BASE = "02"
STORAGE_BASE = "01"
HOST_BRIDGE = "0600"
MULTIMEDIA_BASE = "04"
USB_CONTROLLER = "0c03"
# Beside the GPU itself: audio, a USB-C port's controller and its UCSI function ("other serial bus").
_CARD_CLASSES = (DISPLAY_BASE, ACCELERATOR, MULTIMEDIA_BASE, USB_CONTROLLER, "0c80")
# What vfio leaves aside when it asks whether a group is viable: bridges that forward, and so have no driver of
# their own or pcieport, which manages no DMA (kernel: drivers/pci/pcie/portdrv.c, driver_managed_dma).
_FORWARDING_BRIDGES = (HOST_BRIDGE, "0604", "0609")

_WORDS = {
    "01": "storage controller",
    "02": "network controller",
    "0300": "VGA controller",
    "0302": "3D controller",
    "03": "display controller",
    "0403": "audio device",
    "04": "multimedia device",
    "0600": "host bridge",
    "0601": "ISA bridge",
    "0604": "PCI bridge",
    "06": "bridge",
    "0c03": "USB controller",
    "0c05": "SMBus controller",
    "0c80": "serial bus controller",
    "0c": "serial bus controller",
    "1200": "processing accelerator",
    "12": "processing accelerator",
}


def is_gpu_class(pci_class: str) -> bool:
    """Display controllers of every kind (03xx) and processing accelerators (1200)."""
    return pci_class.startswith((DISPLAY_BASE, ACCELERATOR))


def is_vga(pci_class: str) -> bool:
    """VGA controllers: the kernel chooses the boot display among them (``drivers/pci/vgaarb.c``)."""
    return pci_class.startswith(_VGA)


def is_display(pci_class: str) -> bool:
    """Controllers with a connector for a screen, as a rule: VGA, XGA and other ones (3D controllers have none)."""
    return pci_class.startswith(DISPLAY_BASE) and not pci_class.startswith(_THREE_D)


def is_card_class(pci_class: str) -> bool:
    """What a graphics card consists of; network and storage controllers, bridges and security processors are not."""
    return pci_class.startswith(_CARD_CLASSES)


def is_controller(pci_class: str) -> bool:
    """Network and storage controllers: a host without them is off the network, or without its disks."""
    return pci_class.startswith((NETWORK_BASE, STORAGE_BASE))


def is_forwarding_bridge(pci_class: str) -> bool:
    """Host and PCI-to-PCI bridges, which stay with the host when their group goes to a guest."""
    return pci_class.startswith(_FORWARDING_BRIDGES)


def word(pci_class: str) -> str:
    """What a class is called, for messages: ``3D controller``."""
    return _WORDS.get(pci_class[:4]) or _WORDS.get(pci_class[:2]) or f"device of class {pci_class[:4]}"

"""Names of the functions in the tree. Cards come from the catalogue; the others have their maker and ids."""

from __future__ import annotations

from gpustack.hosts.facts.gpus import Gpu
from gpustack.hosts.facts.model import Function
from gpustack.hosts.topology.model import Kind
from gpustack.pci import classes

# Makers of NICs and PCIe switches (https://pci-ids.ucw.cz).
_MAKERS = {
    "1000": "Broadcom",
    "1022": "AMD",
    "1077": "QLogic",
    "10b5": "PLX",
    "10de": "NVIDIA",
    "11f8": "Microchip",
    "14e4": "Broadcom",
    "15b3": "Mellanox",
    "1af4": "virtio",
    "1b21": "ASMedia",
    "8086": "Intel",
}
_NETWORKS = {"0200": "Ethernet controller", "0207": "InfiniBand controller"}


def name(function: Function, kind: Kind, gpu: Gpu | None) -> str:
    """The name of a function of this kind: ``NVIDIA Quadro K4200``, ``Mellanox InfiniBand controller [15b3:1017]``."""
    if gpu is not None:
        return gpu.name
    noun = ""
    if kind is Kind.NIC:
        noun = _NETWORKS.get(function.pci_class[:4], classes.word(function.pci_class))
    elif kind is Kind.OTHER:
        noun = classes.word(function.pci_class)
    return " ".join(part for part in (_MAKERS.get(function.vendor), noun, f"[{function.ids}]") if part)

"""Network cards with virtual functions, in the layout that QEMU's igb has: ids and slots of their own."""

from __future__ import annotations

from typing import Any

from support.host_samples import Raw, function

CARD, PART = "8086:10c9", "8086:10ca"


def network_card(
    bus: int, count: int, interface: str, *, node: int = 0, part: str = PART, state: str = "up"
) -> list[Raw]:
    """A network card that the host uses, and its virtual functions."""
    address = f"0000:{bus:02x}:00.0"
    ethernet: dict[str, Any] = {"pci_class": "020000", "numa_node": node, "iommu_group": bus}
    uses = {"net": [{"name": interface, "state": state}], "infiniband": [f"rocep{bus}s0"]}
    parts = [f"0000:{bus:02x}:{0x10 + 2 * n // 8:02x}.{2 * n % 8}" for n in range(count)]
    more: dict[str, Any] = {"sriov_totalvfs": 8, "sriov_numvfs": count, "virtual_functions": parts, "uses": uses}
    return [
        function(address, ids=CARD, driver="igb", **more, **ethernet),
        *(function(each, ids=part, driver="igbvf", physical_function=address, **ethernet) for each in parts),
    ]

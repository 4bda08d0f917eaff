"""Class S: an instance has all its devices on this node, and Placement has one more allocated to it.

With PCI in Placement, a cold migration, a resize or an evacuation claims any device that matches the flavor, instead of
the one that Placement chose (``nova/compute/resource_tracker.py``, ``_move_claim``). Then nova-compute allocates the
claimed device as well (``nova/compute/pci_placement_translator.py``, ``update_allocations``), and nothing removes the
other allocation while the instance is on this node.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpustack.cloud.placement import Provider
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import NodeView, Owner
from gpustack.repair.evidence import belongings
from gpustack.repair.verdict import words

# Class Q's pass over all allocations yields the verdicts of this class.
CLASS = "S"
TITLE = "allocated in Placement beside all devices of an instance"
BECAUSE = "the instance uses other devices, all of which are allocated to it; Nova never removes the surplus allocation"


def beside_all(view: NodeView, owner: Owner, of_node: Sequence[Provider]) -> bool:
    """Whether the owner is on this node with exactly its requested devices, and all of them are allocated to it.

    An allocation of a further device is then a phantom. In all other cases it is class Q's.

    :param of_node: all devices of the compute node in Placement.
    """
    if not owner.on(view.node):
        return False
    rows = view.held.get(owner.uuid, ())
    owned = belongings(owner, rows)
    if owned is None or owned.missing or owned.beyond or not rows:
        return False
    providers = (_provider(row, of_node) for row in rows)
    amounts = Counter(provider.uuid for provider in providers if provider is not None)  # none for Neutron's ports
    held = {provider.uuid: provider.held.get(owner.uuid, 0) for provider in of_node}
    return bool(amounts) and all(held[uuid] >= amount for uuid, amount in amounts.items())


def evidence(view: NodeView, owner: Owner) -> Iterator[str]:
    """Describe the devices that the instance has."""
    return (f"{words(row)} to the instance" for row in view.held.get(owner.uuid, ()))


def _provider(row: PciRow, of_node: Sequence[Provider]) -> Provider | None:
    """Return the provider of a row: of the function itself, or of the physical function of a virtual one."""
    addresses = (row.address.lower(), (row.parent_addr or "").lower())
    return next((provider for provider in of_node if provider.address in addresses), None)

"""Values for the charts of capi-helm-charts (openstack-cluster), which Magnum's CAPI Helm driver deploys too.

The chart writes no capacity annotations and lets its autoscaler read no machine templates, so a group cannot scale from
zero until the annotations are added to its MachineDeployment.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpustack.offer.guest.kubernetes.capo import node_labels_of
from gpustack.offer.guest.kubernetes.documents import Document
from gpustack.offer.guest.kubernetes.groups import NodeGroup, tolerations


def documents(groups: Sequence[NodeGroup], drivers: Mapping[str, Any], *, max_nodes: int) -> Iterator[Document]:
    """One document with the groups, the driver pins, and tolerations for NFD's workers.

    The chart of NFD has no tolerations: without them, the GPU Operator finds no GPU node.
    """
    if not groups:
        return
    taints = [taint["key"] for group in groups for taint in group.taints]
    addons = {
        "nodeFeatureDiscovery": {"worker": {"tolerations": tolerations(taints)}} if taints else {},
        "nvidiaGPUOperator": drivers,
    }
    content: dict[str, Any] = {"nodeGroups": [_group(group, max_nodes) for group in groups]}
    if any(addons.values()):
        content["addons"] = {name: {"release": {"values": values}} for name, values in addons.items() if values}
    yield Document(
        notes=("Values of the chart openstack-cluster. Helm replaces lists: add your other groups.",), content=content
    )


def _group(group: NodeGroup, max_nodes: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": group.name,
        "machineFlavor": group.flavor,
        "autoscale": True,
        "machineCountMin": 0,
        "machineCountMax": max_nodes,
        "nodeLabels": node_labels_of(group),
    }
    if group.taints:
        registration = {"taints": group.taints}
        values["kubeadmConfigSpec"] = {"joinConfiguration": {"nodeRegistration": registration}}
    return values

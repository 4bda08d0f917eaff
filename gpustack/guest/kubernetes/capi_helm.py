"""Values for the charts of capi-helm-charts (openstack-cluster), which Magnum's CAPI Helm driver deploys too.

The chart writes no capacity annotations and lets its autoscaler read no machine templates, so a group cannot scale from
zero until the annotations are added to its MachineDeployment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.guest.kubernetes.capo import node_labels_of
from gpustack.guest.kubernetes.documents import Document
from gpustack.guest.kubernetes.groups import NodeGroup


def documents(groups: Sequence[NodeGroup], *, max_nodes: int) -> Iterator[Document]:
    """One document with the groups, and tolerations for their taints."""
    if not groups:
        return
    content: dict[str, Any] = {"nodeGroups": [_group(group, max_nodes) for group in groups]}
    if tolerations := _tolerations(groups):
        values = {"worker": {"tolerations": tolerations}}
        content["addons"] = {"nodeFeatureDiscovery": {"release": {"values": values}}}
    yield Document(
        notes=("Values of the chart openstack-cluster. Helm replaces lists: add your other groups.",), content=content
    )


def findings(groups: Sequence[NodeGroup]) -> Iterator[Finding]:
    """What the chart cannot express."""
    for group in groups:
        yield finding(Code.CHART_WITHOUT_CAPACITY, place=group.flavor)


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
        registration = {"taints": [taint.to_dict() for taint in group.taints]}
        values["kubeadmConfigSpec"] = {"joinConfiguration": {"nodeRegistration": registration}}
    return values


def _tolerations(groups: Sequence[NodeGroup]) -> list[dict[str, str]]:
    """Tolerations of NFD's workers, whose chart has none: without them, the GPU Operator finds no GPU node."""
    taints = dict.fromkeys(taint for group in groups for taint in group.taints)
    return [{"key": taint.key, "operator": "Exists", "effect": taint.effect} for taint in taints]

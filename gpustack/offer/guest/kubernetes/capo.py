"""Groups of nodes for Cluster API Provider OpenStack (CAPO), as a template of ``clusterctl generate yaml``.

The cluster autoscaler starts the first node of a group only if it knows the node's GPUs, CPUs and memory. CAPO 0.14 and
later report CPUs and memory of a flavor, but no GPUs: the annotations have all of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gpustack.offer.guest.kubernetes.documents import Document, arguments, node_labels
from gpustack.offer.guest.kubernetes.groups import NodeGroup

CLUSTER = "${CLUSTER_NAME}"
ACCELERATOR = "cluster-api/accelerator"
"""The label by which the autoscaler waits for the GPUs of a new node instead of starting another one."""
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"


def documents(groups: Sequence[NodeGroup], *, max_nodes: int) -> Iterator[Document]:
    """The objects of each group."""
    for group in groups:
        name = f"{CLUSTER}-{group.name}"
        yield Document(notes=(f"Flavor {group.flavor}",), content=_deployment(group, name, max_nodes))
        yield Document(notes=(), content=_kubeadm(group, name))
        yield Document(notes=(), content=_machine(group, name))


def node_labels_of(group: NodeGroup) -> dict[str, str]:
    """The labels of a node that the cluster autoscaler starts."""
    return {**group.labels, ACCELERATOR: group.gputype or "gpu"}


def capacity(group: NodeGroup) -> dict[str, str]:
    """The annotations with the capacity of a node."""
    sizes, taints = group.sizes, ",".join(map("{key}={value}:{effect}".format_map, group.taints))
    disk = {"ephemeral-disk": f"{sizes.disk}Gi"} if sizes and sizes.disk else {}
    values = {
        **({"cpu": str(sizes.vcpus), "memory": f"{sizes.ram}Mi"} if sizes else {}),
        **disk,
        "gpu-type": group.resource,
        "gpu-count": str(group.count),
        "labels": node_labels(node_labels_of(group)),
        **({"taints": taints} if taints else {}),
    }
    return {f"{_CAPACITY}{key}": value for key, value in values.items()}


def _deployment(group: NodeGroup, name: str, max_nodes: int) -> dict[str, Any]:
    sizes = {f"{_SIZE}min-size": "0", f"{_SIZE}max-size": str(max_nodes)}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "annotations": {**sizes, **capacity(group)}},
        "spec": {
            "clusterName": CLUSTER,
            "selector": {"matchLabels": {}},
            "template": {
                "spec": {
                    "clusterName": CLUSTER,
                    "version": "${KUBERNETES_VERSION}",
                    "bootstrap": {"configRef": _reference("bootstrap", "KubeadmConfigTemplate", name)},
                    "infrastructureRef": _reference("infrastructure", "OpenStackMachineTemplate", name),
                }
            },
        },
    }


def _reference(group: str, kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": f"{group}.cluster.x-k8s.io", "kind": kind, "name": name}


def _kubeadm(group: NodeGroup, name: str) -> dict[str, Any]:
    kubelet = {
        "cloud-provider": "external",
        "provider-id": "openstack:///'{{ instance_id }}'",
        "node-labels": node_labels(node_labels_of(group)),
    }
    registration: dict[str, Any] = {"name": "{{ local_hostname }}", "kubeletExtraArgs": arguments(kubelet)}
    if group.taints:
        registration["taints"] = group.taints
    return {
        "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2",
        "kind": "KubeadmConfigTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"joinConfiguration": {"nodeRegistration": registration}}}},
    }


def _machine(group: NodeGroup, name: str) -> dict[str, Any]:
    """CAPO 0.14 and 0.15 serve v1beta1; 0.15 converts it. Nova needs a volume for flavors without a disk."""
    volume = {"rootVolume": {"sizeGiB": "${GPU_ROOT_VOLUME_GIB:=100}"}} if group.sizes and not group.sizes.disk else {}
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "OpenStackMachineTemplate",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "flavor": group.flavor,
                    "image": {"filter": {"name": "${OPENSTACK_IMAGE_NAME}"}},
                    "sshKeyName": "${OPENSTACK_SSH_KEY_NAME}",
                    **volume,
                }
            }
        },
    }

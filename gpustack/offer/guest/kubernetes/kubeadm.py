"""Parts of kubeadm's configuration: a scheduler that fills nodes with GPUs, and labels and taints of nodes.

With the default LeastAllocated, Pods with one GPU spread over the nodes, and no node keeps several free GPUs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.offer.guest.kubernetes.documents import Document, arguments, listed, node_labels
from gpustack.offer.guest.kubernetes.groups import NodeGroup

SCHEDULER_FILE = "/etc/kubernetes/gpustack-scheduler.yaml"
_API = "kubeadm.k8s.io/v1beta4"
_SCHEDULER_API = "kubescheduler.config.k8s.io/v1"
_GPU_WEIGHT = 10
"""The weight of GPUs beside 1 of CPU and memory: the number of GPUs decides, the others break ties."""


def documents(groups: Sequence[NodeGroup]) -> Iterator[Document]:
    """The scheduler's configuration, the cluster's, and that of each kind of node."""
    if not groups:
        return
    resources = list(dict.fromkeys(group.resource for group in groups))
    yield Document(notes=(f"{SCHEDULER_FILE} on each control plane",), content=scheduler(resources))
    yield Document(notes=("Merge this into the configuration of kubeadm init.",), content=_cluster())
    for kind in by_key(((group.gputype, group.resource), group) for group in groups).values():
        if registration := _registration(kind[0]):
            flavors = listed(group.flavor for group in kind)
            yield Document(
                notes=(f"Merge this into the configuration of kubeadm join on nodes of {flavors}.",),
                content={"apiVersion": _API, "kind": "JoinConfiguration", "nodeRegistration": registration},
            )


def scheduler(resources: Sequence[str]) -> dict[str, Any]:
    """The configuration of kube-scheduler. With ``--config``, it ignores ``--kubeconfig``."""
    weights = {**dict.fromkeys(resources, _GPU_WEIGHT), "cpu": 1, "memory": 1}
    strategy = {
        "type": "MostAllocated",
        "resources": [{"name": name, "weight": weight} for name, weight in weights.items()],
    }
    fit = {"apiVersion": _SCHEDULER_API, "kind": "NodeResourcesFitArgs", "scoringStrategy": strategy}
    return {
        "apiVersion": _SCHEDULER_API,
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "leaderElection": {"leaderElect": True},
        "profiles": [
            {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}]}
        ],
    }


def _cluster() -> dict[str, Any]:
    path = {"hostPath": SCHEDULER_FILE, "mountPath": SCHEDULER_FILE, "readOnly": True, "pathType": "File"}
    volume = {"name": "gpustack-scheduler", **path}
    return {
        "apiVersion": _API,
        "kind": "ClusterConfiguration",
        "scheduler": {"extraArgs": arguments({"config": SCHEDULER_FILE}), "extraVolumes": [volume]},
    }


def _registration(group: NodeGroup) -> dict[str, Any]:
    registration: dict[str, Any] = {}
    if group.taints:
        registration["taints"] = group.taints
    if group.labels:
        registration["kubeletExtraArgs"] = arguments({"node-labels": node_labels(group.labels)})
    return registration

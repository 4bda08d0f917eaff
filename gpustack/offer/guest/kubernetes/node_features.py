"""The label with the model, set by Node Feature Discovery (NFD) from the PCI ids of a node.

It needs no driver in the node and no option of its kubelet, so it works in clusters that others create.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.offer.guest.kubernetes.documents import Document
from gpustack.offer.guest.kubernetes.groups import GPUTYPE, NodeGroup, gputype
from gpustack.spec.model import Spec
from gpustack.spec.models import Model
from gpustack.spec.vgpu_use import needs_licensed_driver


def documents(spec: Spec, groups: Sequence[NodeGroup]) -> Iterator[Document]:
    """One object with a rule for each kind of node. If several rules match, the label of the last one remains."""
    kinds = sorted(_kinds(groups), key=lambda kind: (len(kind), sum(len(_ids(spec.models[m])) for m in kind)))
    if rules := [_rule(spec, kind) for kind in kinds]:
        yield Document(
            notes=(f"Sets the label {GPUTYPE} by PCI ids.",),
            content={
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
                "kind": "NodeFeatureRule",
                "metadata": {"name": "gpustack-gputype"},
                "spec": {"rules": rules},
            },
        )


def findings(spec: Spec, groups: Sequence[NodeGroup]) -> Iterator[Finding]:
    """Models that NFD can't distinguish."""
    models = dict.fromkeys(model for kind in _kinds(groups) for model in kind)
    by_ids = by_key((str(_ids(spec.models[model])), model) for model in models)
    for same in by_ids.values():
        for model in same[:-1]:
            yield finding(Code.MODELS_WITH_SAME_IDS, place=model, other=same[-1])


def _kinds(groups: Sequence[NodeGroup]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(kind for group in groups for kind in group.kinds))


def _rule(spec: Spec, models: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": f"gputype {'.'.join(models)}",
        "labels": {GPUTYPE: gputype(models)},
        "matchFeatures": [{"feature": "pci.device", "matchExpressions": _ids(spec.models[model])} for model in models],
    }


def _ids(model: Model) -> dict[str, Any]:
    """The ids of a GPU in a node. A vGPU of NVIDIA has those of its card, with another class and subsystem."""
    match = model.match
    ids = {"vendor": match.vendor, "device": model.ids[1]}
    if not needs_licensed_driver(model):
        ids |= {
            "class": match.pci_class or "",
            "subsystem_vendor": match.subsystem_vendor or "",
            "subsystem_device": match.subsystem_product or "",
        }
    return {name: {"op": "In", "value": [value]} for name, value in ids.items() if value}

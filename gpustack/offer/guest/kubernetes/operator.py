"""Values of NVIDIA GPU Operator that pin the driver, since the operator's default drops old GPUs with an update.

If one driver serves all nodes, it is ``driver.version``. Otherwise each kind of node has an object ``NVIDIADriver``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpustack.base.findings import Code, Finding, finding
from gpustack.offer.guest.drivers import OperatorPin, operator_pin
from gpustack.offer.guest.kubernetes.documents import Document
from gpustack.offer.guest.kubernetes.groups import GPUTYPE, NVIDIA, NodeGroup, gputype, node_name, tolerations
from gpustack.offer.guest.requirements import combined, findings_of, requirement_of_model
from gpustack.spec.model import Spec


def documents(values: Mapping[str, Any]) -> Iterator[Document]:
    """The values as a document."""
    if values:
        notes = ["Values of the chart gpu-operator."]
        if "extraObjects" in values:
            notes.append(f"Needs NVIDIA GPU Operator v26.3.0 or later, and the label {GPUTYPE} on the nodes.")
        yield Document(notes=tuple(notes), content=values)


def pins(spec: Spec, groups: Sequence[NodeGroup]) -> tuple[Mapping[str, Any], Sequence[Finding]]:
    """The values of the operator's chart with the driver of each kind of node, and the findings about them.

    There are no values without an NVIDIA GPU.
    """
    findings: list[Finding] = []
    served: dict[tuple[str, ...], OperatorPin] = {}
    refused = False
    for group in groups:
        if group.resource != NVIDIA:
            findings.append(finding(Code.NO_OPERATOR_NEEDED, place=group.flavor, resource=group.resource))
            continue
        for kind in group.kinds:
            pin, problems = _pin(spec, group.flavor, group.models if group.mixes else kind)
            findings += problems
            if pin is None:
                refused = True
            elif group.mixes or kind not in served:
                served[kind] = pin
    models = sorted({model for kind in served for model in kind})
    common = None if refused or not served else _pin(spec, "", models)[0]
    return _values(common, served), list(dict.fromkeys(findings))


def _pin(spec: Spec, flavor: str, models: Sequence[str]) -> tuple[OperatorPin | None, tuple[Finding, ...]]:
    needs = combined(flavor, [requirement_of_model(spec, model) for model in models])
    pin = operator_pin(needs.nvidia) if needs.nvidia else None
    if pin is not None:
        return pin, tuple(findings_of(needs))
    unserved = f"no release installs {needs.nvidia}" if needs.nvidia else "the catalogue does not know what they need"
    reason = needs.conflict or unserved
    if needs.vgpus:
        reason = "vGPUs need the licensed guest driver, which the operator installs from a private image only"
    return None, (finding(Code.NO_DRIVER_OF_OPERATOR, place=flavor, models=", ".join(models), reason=reason),)


def _values(common: OperatorPin | None, served: Mapping[tuple[str, ...], OperatorPin]) -> dict[str, Any]:
    if common is not None:
        return {"driver": {"version": common.driver, "kernelModuleType": common.module_type}}
    if not served:
        return {}
    return {
        "driver": {"nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False}},
        "extraObjects": [_driver(number, kind, pin) for number, (kind, pin) in enumerate(served.items(), 1)],
    }


def _driver(number: int, models: Sequence[str], pin: OperatorPin) -> dict[str, Any]:
    """An object for the nodes with these models; it has none of the chart's defaults."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": node_name(f"gpu-{number}-{gputype(models)}")},
        "spec": {
            "driverType": "gpu",
            "repository": "nvcr.io/nvidia",
            "image": "driver",
            "version": pin.driver,
            "kernelModuleType": pin.module_type,
            "nodeSelector": {GPUTYPE: gputype(models)},
            "tolerations": tolerations([NVIDIA]),
        },
    }

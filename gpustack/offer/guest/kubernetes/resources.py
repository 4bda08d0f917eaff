"""The extended resource under which a device plug-in of Kubernetes offers the GPUs of a model."""

from __future__ import annotations

from gpustack.pci import catalogue
from gpustack.pci.catalogue import requirement_of
from gpustack.spec.models import Model

NVIDIA = "nvidia.com/gpu"
_OF_VENDOR = {"10de": NVIDIA, "1002": "amd.com/gpu"}
_OF_MODULE = {"i915": "gpu.intel.com/i915", "xe": "gpu.intel.com/xe"}
"""Intel's plug-in names the resource after the driver in the kernel."""


def resource_of(model: Model) -> str | None:
    """The resource; None if gpustack knows no plug-in for the model."""
    match = model.match
    if match.vendor in _OF_VENDOR:
        return _OF_VENDOR[match.vendor]
    card = catalogue.lookup(match.vendor, match.product, match.subsystem_vendor, match.subsystem_product)
    return _OF_MODULE.get(requirement_of(card).module or "") if card else None

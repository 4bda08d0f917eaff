"""Marker classes: resource classes by which Nova's unified limits count GPUs without PCI in Placement.

Each host has as many units of the class as GPUs, and each flavor requests as many as it requests GPUs. There is one
class for each alias, since an alias is what flavors request. Its name differs from the classes that Nova reports for
devices: otherwise a device could fulfil the request for the marker.
"""

import re
from collections.abc import Mapping

from gpustack.spec.model import Spec

MARKERS = "CUSTOM_GPU_QUOTA_"
"""The beginning of the names of marker classes."""
RESOURCES = "resources:"
"""The prefix of extra specs that request resources."""


def marker_of(alias: str) -> str:
    """The marker class of an alias."""
    return MARKERS + re.sub("[^0-9A-Z]+", "_", alias.upper())


def markers(spec: Spec) -> dict[str, str]:
    """The marker class of each alias with a limit; empty if the spec has none."""
    if spec.quotas is None or spec.quotas.count != "marker":
        return {}
    return {alias: marker_of(alias) for alias in map(spec.alias_of, spec.quotas.default)}


def units(spec: Spec, gpus: Mapping[str, int]) -> dict[str, int]:
    """The units by marker class for a number of GPUs by alias."""
    return {name: gpus[alias] for alias, name in markers(spec).items() if gpus.get(alias)}


def extra_specs(spec: Spec, gpus: Mapping[str, int]) -> dict[str, str]:
    """The extra specs with which a flavor requests the markers of its GPUs."""
    return {f"{RESOURCES}{name}": str(number) for name, number in units(spec, gpus).items()}

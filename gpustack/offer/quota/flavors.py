"""Flavors of the cloud against the markers that Nova counts: each must request as many as GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.spec.markers import RESOURCES


def uncounted(flavors: Iterable[PresentFlavor], markers: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about flavors that request other markers than GPUs.

    :param markers: the marker class of each alias with a limit.
    """
    for flavor in flavors:
        for alias, marker in markers.items():
            gpus, key = flavor.gpus.get(alias, 0), f"{RESOURCES}{marker}"
            requested = flavor.extra_specs.get(key)
            if requested is None and gpus:
                yield finding(
                    Code.FLAVOR_NOT_COUNTED, place=flavor.name, flavor=flavor.name, count=gpus, alias=alias, key=key
                )
            elif requested is not None and requested != str(gpus):
                yield finding(
                    Code.FLAVOR_MARKER_DIFFERS,
                    place=flavor.name,
                    flavor=flavor.name,
                    markers=requested,
                    marker=marker,
                    gpus=gpus,
                    key=key,
                )

"""Compare the markers of hosts in Placement, and those of flavors, with their GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.model import Host
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.quota.desired import WantedLimits, class_of
from gpustack.spec.markers import RESOURCES, markers
from gpustack.spec.model import Spec
from gpustack.spec.verdict import verdicts

Totals = Mapping[str, Mapping[str, int]]
"""The units of each resource class on each host."""


def gpus_of(spec: Spec, hosts: Sequence[Host]) -> dict[str, dict[str, int]]:
    """The GPUs that each host offers, by the resource class that Nova counts."""
    limited = set(spec.quotas.default) if spec.quotas else set()
    aliases = {spec.alias_of(model): model for model in limited}
    counted: dict[str, dict[str, int]] = {}
    for host in hosts:
        of_host = counted.setdefault(host.hostname, {})
        for target in verdicts(spec, host).offered:
            model = target.model if target.model in limited else aliases.get(spec.alias_of(target.model))
            if model is not None:
                name = class_of(spec, model)
                of_host[name] = of_host.get(name, 0) + 1
    return counted


def sums(gpus: Totals, wanted: WantedLimits) -> dict[str, int]:
    """The GPUs of all hosts by resource class."""
    return {name: sum(of_host.get(name, 0) for of_host in gpus.values()) for name in wanted.models}


def differing(spec: Spec, gpus: Totals, inventories: Totals) -> Iterator[Finding]:
    """Findings about hosts with another number of markers in Placement than GPUs."""
    for host, of_host in gpus.items():
        for marker in markers(spec).values():
            total, number = inventories.get(host, {}).get(marker, 0), of_host.get(marker, 0)
            if total != number:
                yield finding(
                    Code.MARKER_TOTAL_DIFFERS, place=host, total=total, marker=marker, where="Placement", gpus=number
                )


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

"""The state that a spec wants, for the compute nodes that Nova has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpustack.base.hostnames import key
from gpustack.cloud.compute import Hypervisor
from gpustack.offer.tenancy.model import Wanted, WantedAggregate
from gpustack.spec.flavors import named
from gpustack.spec.hosts import patterns_for
from gpustack.spec.model import Spec
from gpustack.spec.patterns import HostPattern
from gpustack.spec.requests import by_model
from gpustack.spec.tenancy import DEFAULT_TRAIT, GpuAggregate


def wanted(spec: Spec, nodes: Iterable[Hypervisor], projects: Mapping[str, str]) -> Wanted:
    """Return the state that a spec wants.

    :param projects: ids of projects, by their id or name in the spec.
    """
    known = [node for node in nodes if any(patterns_for(spec, name) for name in (node.host, node.node))]
    entries = spec.tenancy.aggregates if spec.tenancy else {}
    aggregates = [
        WantedAggregate(
            name=name,
            hosts=frozenset(node.host for node in known if _is_in(entry, node)),
            projects=frozenset(projects[project] for project in entry.projects),
            isolated=entry.isolated,
        )
        for name, entry in entries.items()
    ]
    missing = {name: tuple(_missing(entry.hosts or tuple(spec.hosts), known)) for name, entry in entries.items()}
    return Wanted(
        trait=spec.tenancy.trait if spec.tenancy else DEFAULT_TRAIT,
        gpu_hosts=frozenset(node.host for node in known),
        aggregates=tuple(aggregates),
        aliases=frozenset(alias for model in spec.models for alias in spec.aliases_of(model)),
        flavors=frozenset(named(name, count) for name, flavor in spec.flavors.items() for count, _ in by_model(flavor)),
        missing={name: hosts for name, hosts in missing.items() if hosts},
    )


def _is_in(entry: GpuAggregate, node: Hypervisor) -> bool:
    patterns = [HostPattern.parse(text) for text in entry.hosts]
    return not patterns or any(pattern.matches(name) for pattern in patterns for name in (node.host, node.node))


def _missing(patterns: Iterable[str], nodes: Iterable[Hypervisor]) -> Iterator[str]:
    """The names, and patterns with wildcards, that match no compute node of the spec's hosts."""
    names = [name for node in nodes for name in (node.host, node.node)]
    keys = set(map(key, names))
    for text in patterns:
        pattern = HostPattern.parse(text)
        if not any(map(pattern.matches, names)):
            yield text
        elif "*" not in text and "?" not in text:
            yield from (name for name in pattern.names() if key(name) not in keys)

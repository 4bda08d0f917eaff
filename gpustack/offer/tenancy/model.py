"""The state of a cloud that decides which instances the GPU hosts accept, and the state that a spec wants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.servers import Server
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.spec.extra_specs import required_traits

MARK = "gpustack:tenancy"
"""The metadata of the aggregates that gpustack created; its value is the trait of the spec. Nova ignores it."""


@dataclass(frozen=True, kw_only=True)
class WantedAggregate:
    """An aggregate of the spec.

    :ivar hosts: its hosts, as Nova names them.
    :ivar projects: ids of the projects that the hosts accept; empty for all.
    """

    name: str
    hosts: frozenset[str]
    projects: frozenset[str] = frozenset()
    isolated: bool = True


@dataclass(frozen=True, kw_only=True)
class Present:
    """The state of a cloud.

    :ivar bearers: the uuids of the providers with each trait, by trait.
    :ivar members: the uuids of the providers of an aggregate of gpustack in Placement, by the name of the aggregate.
    """

    aggregates: tuple[Aggregate, ...] = ()
    nodes: tuple[Hypervisor, ...] = ()
    bearers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    flavors: tuple[PresentFlavor, ...] = ()
    servers: tuple[Server, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The state that a spec wants.

    :ivar trait: the trait of the GPU hosts.
    :ivar gpu_hosts: all hosts of the spec, as Nova names them.
    :ivar aliases: the aliases by which flavors request the GPUs of the spec.
    :ivar flavors: the names of the spec's flavors.
    :ivar missing: names of hosts without a compute node, by aggregate.
    """

    trait: str
    gpu_hosts: frozenset[str] = frozenset()
    aggregates: tuple[WantedAggregate, ...] = ()
    aliases: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def lacking(self, trait: str, present: Iterable[PresentFlavor]) -> tuple[list[str], list[str]]:
        """The names of GPU flavors that do not require a trait: the spec's, and those of others."""
        without = [
            flavor.name
            for flavor in present
            if self.aliases & flavor.gpus.keys() and trait not in required_traits(flavor.extra_specs)
        ]
        return sorted(self.flavors.intersection(without)), sorted({*without} - self.flavors)

    @property
    def isolates(self) -> bool:
        """Whether a host refuses ordinary instances."""
        return any(aggregate.isolated for aggregate in self.aggregates)


def is_ours(aggregate: Aggregate) -> bool:
    """Whether gpustack created an aggregate."""
    return MARK in aggregate.metadata


@dataclass(frozen=True, kw_only=True)
class ReservedHost:
    """A host in an aggregate of gpustack.

    :ivar projects: ids of the projects that the aggregate admits; empty for all.
    :ivar isolated: whether Nova and Placement have all that keeps ordinary instances off.
    :ivar bears_trait: whether the host has the trait of the aggregate.
    """

    host: str
    aggregate: str
    projects: tuple[str, ...]
    isolated: bool
    bears_trait: bool


def reserved(present: Present) -> Iterator[ReservedHost]:
    """Yield the hosts of gpustack's aggregates."""
    providers = {node.host: node.uuid for node in present.nodes}
    for aggregate in sorted(filter(is_ours, present.aggregates), key=lambda entry: entry.name):
        trait = aggregate.metadata[MARK]
        for host in sorted(aggregate.hosts):
            provider = providers.get(host, "")
            yield ReservedHost(
                host=host,
                aggregate=aggregate.name,
                projects=tuple(sorted(aggregate.projects)),
                isolated=trait in aggregate.traits and provider in present.members.get(aggregate.name, ()),
                bears_trait=provider in present.bearers.get(trait, ()),
            )

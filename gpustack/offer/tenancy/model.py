"""The state of a cloud that decides which instances the GPU hosts accept, and the state that a spec wants."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.base.hostnames import key
from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.servers import Server, requested_classes
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.spec.extra_specs import required_traits
from gpustack.spec.model import Spec, patterns_for
from gpustack.spec.patterns import HostPattern
from gpustack.spec.requests import entries
from gpustack.spec.tenancy import DEFAULT_TRAIT, GpuAggregate

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
    :ivar aliases: the aliases, and the resource classes of vGPUs, by which flavors request the GPUs of the spec.
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
            if self.has_gpus(flavor.gpus, requested_classes(flavor.extra_specs))
            and trait not in required_traits(flavor.extra_specs)
        ]
        return sorted(self.flavors.intersection(without)), sorted({*without} - self.flavors)

    def has_gpus(self, devices: Mapping[str, int], classes: Mapping[str, int]) -> bool:
        """Whether a flavor or an instance requests GPUs of the spec: by alias, or by resource class."""
        return not self.aliases.isdisjoint((*devices, *classes))

    @property
    def isolates(self) -> bool:
        """Whether a host refuses ordinary instances."""
        return any(aggregate.isolated for aggregate in self.aggregates)


def is_ours(aggregate: Aggregate) -> bool:
    """Whether gpustack created an aggregate."""
    return MARK in aggregate.metadata


def is_foreign(aggregate: Aggregate | None) -> bool:
    """Whether somebody else created an aggregate. One without any content may be an interrupted run's."""
    return aggregate is not None and not is_ours(aggregate) and bool(aggregate.hosts or aggregate.metadata)


def outside_placement(present: Present) -> Iterator[tuple[str, str]]:
    """Each aggregate of gpustack with a host that Placement lacks in it: Nova does not isolate the host."""
    for aggregate in filter(is_ours, present.aggregates):
        members = present.members.get(aggregate.name, frozenset())
        for node in present.nodes:
            if aggregate.has(node.host) and node.uuid not in members:
                yield aggregate.name, node.host


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
    outside = set(outside_placement(present))
    for aggregate in sorted(filter(is_ours, present.aggregates), key=lambda entry: entry.name):
        trait = aggregate.metadata[MARK]
        for host in sorted(aggregate.hosts):
            provider = providers.get(host, "")
            yield ReservedHost(
                host=host,
                aggregate=aggregate.name,
                projects=tuple(sorted(aggregate.projects)),
                isolated=trait in aggregate.traits and host in providers and (aggregate.name, host) not in outside,
                bears_trait=provider in present.bearers.get(trait, ()),
            )


def wanted(spec: Spec, nodes: Iterable[Hypervisor], projects: Mapping[str, str]) -> Wanted:
    """Return the state that a spec wants.

    :param projects: ids of projects, by their id or name in the spec.
    """
    known = [node for node in nodes if any(patterns_for(spec, name) for name in (node.host, node.node))]
    of_spec = spec.tenancy.aggregates if spec.tenancy else {}
    aggregates = [
        WantedAggregate(
            name=name,
            hosts=frozenset(node.host for node in known if _is_in(entry, node)),
            projects=frozenset(projects[project] for project in entry.projects),
            isolated=entry.isolated,
        )
        for name, entry in of_spec.items()
    ]
    missing = {name: tuple(_missing(entry.hosts or tuple(spec.hosts), known)) for name, entry in of_spec.items()}
    return Wanted(
        trait=spec.tenancy.trait if spec.tenancy else DEFAULT_TRAIT,
        gpu_hosts=frozenset(node.host for node in known),
        aggregates=tuple(aggregates),
        aliases=frozenset(alias for model in spec.models for alias in spec.requested_as(model)),
        flavors=frozenset(entry.name for entry in entries(spec)),
        missing={name: hosts for name, hosts in missing.items() if hosts},
    )


def _is_in(entry: GpuAggregate, node: Hypervisor) -> bool:
    patterns = [HostPattern.parse(text) for text in entry.hosts]
    return not patterns or any(pattern.matches(name) for pattern in patterns for name in (node.host, node.node))


def _missing(patterns: Iterable[str], nodes: Iterable[Hypervisor]) -> Iterator[str]:
    """The names, and patterns with wildcards, that match no compute node of the spec's hosts."""
    names = {name for node in nodes for name in (node.host, node.node)}
    keys = set(map(key, names))
    for text in patterns:
        pattern = HostPattern.parse(text)
        if not (text in names if pattern.is_name else any(map(pattern.matches, names))):
            yield text
        elif not pattern.is_open:
            yield from (name for name in pattern.names() if key(name) not in keys)

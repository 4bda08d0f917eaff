"""The hosts that gpustack reserves, as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustack.offer.tenancy.model import MARK, Present, is_ours


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
    providers = {node.host: node.provider for node in present.nodes}
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

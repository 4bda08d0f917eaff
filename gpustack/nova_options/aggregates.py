"""Host aggregates of Nova, as nova-scheduler reads their metadata. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from gpustack.base.by_key import by_key
from gpustack.base.hostnames import key
from gpustack.spec.extra_specs import required_traits

BY_PROJECT = "AggregateMultiTenancyIsolation"
"""The filter that keeps other projects off the hosts of an aggregate; the projects themselves may use other hosts."""
PROJECTS = "filter_tenant_id"
"""The metadata with ids of projects. Releases after 2023.1 also read other keys that begin with it."""
MOST = "max_instances_per_host"
"""The only metadata that Nova does not split at commas."""


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """An aggregate of Nova.

    :ivar hosts: its hosts, as Nova names them.
    :ivar uuid: its id in Placement.
    :ivar created: the time of its creation, in UTC; None if unknown.
    """

    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    id: int = 0
    uuid: str = ""
    created: datetime | None = None

    @property
    def projects(self) -> frozenset[str]:
        """The ids of the projects that its hosts accept; empty for all."""
        return _values(text for name, text in self.metadata.items() if name.startswith(PROJECTS))

    @property
    def traits(self) -> frozenset[str]:
        """The traits that instances must require (``trait:NAME = required``): others get no host of the aggregate."""
        return required_traits(self.metadata)

    def has(self, host: str) -> bool:
        """Whether a host is in it."""
        return key(host) in self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(key, self.hosts))


def metadata_of(host: str, aggregates: Sequence[Aggregate]) -> dict[str, frozenset[str]]:
    """The metadata of a host's aggregates, as the filters have it: all values of each key."""
    texts = by_key(pair for aggregate in aggregates if aggregate.has(host) for pair in aggregate.metadata.items())
    return {name: frozenset(of_name) if name == MOST else _values(of_name) for name, of_name in texts.items()}


def _values(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(part.strip() for text in texts for part in text.split(","))

"""A cloud in memory for plans over several groups: flavors, limits, aggregates, traits, images, as strict as the APIs.

Who can use which GPU is computed here by trying every project, flavor and host; the code under test is not used for it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpustack.cloud.image import Image
from gpustack.cloud.limits import Limit, Present
from gpustack.cloud.session import Refused
from gpustack.nova_options.aggregates import Aggregate
from support.flavor_model import NovaModel

MANY = 4
"""A number of GPUs that stands for no limit."""
Use = tuple[str, str, str, int]
"""A project that can use so many GPUs of an alias on a host."""


class Keystone:
    """Limits in memory; a default changes only without limits of projects, as in Keystone."""

    def __init__(self) -> None:
        self.limits: dict[str, Limit] = {}

    def present(self) -> Present:
        every = tuple(self.limits.values())
        return Present(
            defaults=tuple(limit for limit in every if limit.project is None),
            limits=tuple(limit for limit in every if limit.project),
        )

    def find(self, resource_class: str, project: str | None) -> Limit | None:
        return self.limits.get(f"{project} {resource_class}")

    def create(self, resource_class: str, project: str | None, limit: int, description: str) -> None:
        key = f"{project} {resource_class}"
        _require(key not in self.limits and (project is None or f"None {resource_class}" in self.limits))
        self.limits[key] = Limit(
            id=key, resource_class=resource_class, limit=limit, project=project, description=description
        )

    def change(self, limit: Limit, value: int) -> None:
        _require(self._is_free(limit))
        self.limits[limit.id] = replace(limit, limit=value)

    def delete(self, limit: Limit) -> None:
        _require(self._is_free(limit))
        del self.limits[limit.id]

    def _is_free(self, limit: Limit) -> bool:
        owned = {other.resource_class for other in self.limits.values() if other.project}
        return bool(limit.project) or limit.resource_class not in owned


@dataclass
class Hosts:
    """Aggregates of Nova and traits of Placement; takes the place of the modules with their requests."""

    known: dict[str, Aggregate] = field(default_factory=dict)
    traits: dict[str, set[str]] = field(default_factory=dict)
    number: int = 1

    def aggregates(self, api: object) -> list[Aggregate]:
        return list(self.known.values())

    def create_aggregate(self, api: object, name: str) -> int:
        _require(name not in self.known)
        self.number += 1
        self.known[name] = Aggregate(name=name, hosts=frozenset(), id=self.number)
        return self.number

    def delete_aggregate(self, api: object, aggregate: int) -> None:
        (found,) = (found for found in self.known.values() if found.id == aggregate)
        _require(not found.hosts)
        del self.known[found.name]

    def change_aggregate(self, api: object, aggregate: int, action: str, body: Mapping[str, Any]) -> None:
        (found,) = (found for found in self.known.values() if found.id == aggregate)
        if action == "set_metadata":
            values = {**found.metadata, **body["metadata"]}
            found = replace(found, metadata={key: value for key, value in values.items() if value is not None})
        elif action == "add_host":
            found = replace(found, hosts=found.hosts | {body["host"]})
        else:
            found = replace(found, hosts=found.hosts - {body["host"]})
        self.known[found.name] = found

    def bearers(self, api: object, trait: str) -> frozenset[str]:
        return frozenset(self.traits.get(trait, ()))

    def set_trait(self, api: object, provider: str, trait: str, *, wanted: bool) -> None:
        bearers = self.traits.setdefault(trait, set())
        (bearers.add if wanted else bearers.discard)(provider)


@dataclass
class Images:
    """Images with properties; as in Glance, one cannot be removed or replaced that is not there."""

    known: dict[str, Image] = field(default_factory=dict)

    def image(self, image_id: str) -> Image | None:
        return self.known.get(image_id)

    def change(
        self, image_id: str, name: str, before: Mapping[str, str | None], after: Mapping[str, str | None]
    ) -> None:
        image = self.known[image_id]
        _require(all(before[key] is None or key in image.properties for key in after))
        properties = {**image.properties, **after}
        kept = {key: value for key, value in properties.items() if value is not None}
        self.known[image_id] = replace(image, properties=kept)


def _require(permitted: bool) -> None:
    if not permitted:
        raise Refused("HTTP 409, the API refuses that", status=409)


@dataclass
class CloudModel:
    """All parts of a cloud.

    :ivar hosts: names of hosts; the provider of each is ``p-NAME``.
    :ivar classes: the resource class that limits each alias.
    """

    hosts: tuple[str, ...]
    projects: tuple[str, ...]
    classes: dict[str, str]
    nova: NovaModel = field(default_factory=NovaModel)
    keystone: Keystone = field(default_factory=Keystone)
    places: Hosts = field(default_factory=Hosts)
    glance: Images = field(default_factory=Images)

    def apis(self) -> dict[str, Any]:
        """The client of each kind of change."""
        tenancy = dict.fromkeys(("aggregate", "aggregate_host", "aggregate_metadata", "trait"))
        return {
            "flavor": self.nova,
            "flavor_access": self.nova,
            "limit": self.keystone,
            "image": self.glance,
            **tenancy,
        }

    def state(self) -> object:
        """All that an undo restores, without ids that an API assigns."""
        aggregates = {name: (found.hosts, dict(found.metadata)) for name, found in self.places.known.items()}
        traits = {trait: sorted(bearers) for trait, bearers in self.places.traits.items() if bearers}
        limits = {key: (limit.limit, limit.description) for key, limit in self.keystone.limits.items()}
        return copy.deepcopy((self.nova.state(), aggregates, traits, limits, self.glance.known))

    def uses(self) -> frozenset[Use]:
        """Who can use what."""
        return frozenset(self._uses())

    def _uses(self) -> Iterator[Use]:
        for project in (*self.projects, "somebody"):
            for flavor in self.nova.by_id.values():
                if not flavor.gpus or not (flavor.public or project in self.nova.lists[flavor.id]):
                    continue
                (alias,) = flavor.gpus
                for host in self.hosts:
                    if self._fits(flavor.extra_specs, host) and self._accepts(host, project):
                        for number in range(1, self._limit(self.classes[alias], project) + 1):
                            yield project, alias, host, number

    def _fits(self, specs: Mapping[str, str], host: str) -> bool:
        required = {key for key, value in specs.items() if key.startswith("trait:") and value == "required"}
        borne = {f"trait:{trait}" for trait, bearers in self.places.traits.items() if f"p-{host}" in bearers}
        demanded = {key for found in self._of(host) for key in found.metadata if key.startswith("trait:")}
        return required <= borne and demanded <= required

    def _accepts(self, host: str, project: str) -> bool:
        lists = [found.metadata["filter_tenant_id"] for found in self._of(host) if "filter_tenant_id" in found.metadata]
        return not lists or any(project in text.split(",") for text in lists)

    def _limit(self, resource_class: str, project: str) -> int:
        limits = self.keystone.limits
        found = limits.get(f"{project} {resource_class}") or limits.get(f"None {resource_class}")
        return MANY if found is None or found.limit < 0 else found.limit

    def _of(self, host: str) -> list[Aggregate]:
        return [found for found in self.places.known.values() if host in found.hosts]

"""Nova's and Placement's API through openstacksdk, the only module of this package that sends requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpustack.cloud.session import Refused, raise_refusal, translated_errors
from gpustack.fleet.aggregates import VERSION as NOVA
from gpustack.fleet.aggregates import aggregates
from gpustack.fleet.compute import listing
from gpustack.fleet.placement import VERSION as PLACEMENT
from gpustack.fleet.requests import get, pages, well_formed
from gpustack.offer.flavor.cloud import FlavorCloud
from gpustack.offer.tenancy.model import MARK, Node, Present, is_ours
from gpustack.spec.tenancy import Tenancy

if TYPE_CHECKING:
    from openstack.connection import Connection

_ATTEMPTS = 4
_UNKNOWN, _CONFLICT = 400, 409


def present(connection: Connection, trait: str, *, in_use: bool = True) -> Present:
    """Read the state of a cloud, for this trait and those of earlier specs.

    :param in_use: whether to read flavors and instances too.
    :raises CloudError: if Nova or Placement cannot be reached or refuses.
    """
    known = aggregates(connection)
    ours = [aggregate for aggregate in known if is_ours(aggregate)]
    traits = {trait, *(aggregate.metadata[MARK] for aggregate in ours)}
    return Present(
        aggregates=tuple(known),
        nodes=tuple(_nodes(connection)),
        bearers={name: bearers(connection, name) for name in sorted(traits)},
        members={aggregate.name: _providers(connection, f"member_of={aggregate.uuid}") for aggregate in ours},
        flavors=FlavorCloud(connection).flavors() if in_use else (),
        servers=listing(connection).servers if in_use else (),
    )


def projects(connection: Connection, tenancy: Tenancy | None) -> dict[str, str]:
    """Return the ids of the projects that a spec names.

    :raises CloudError: if no project, or more than one, has a name.
    """
    cloud = FlavorCloud(connection)
    entries = tenancy.aggregates.values() if tenancy else ()
    return {name: cloud.project(name) for entry in entries for name in entry.projects}


def bearers(connection: Connection, trait: str) -> frozenset[str]:
    """Return the providers with a trait; none if Placement does not know the trait.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    try:
        return _providers(connection, f"required={trait}")
    except Refused as error:
        if error.status == _UNKNOWN:
            return frozenset()
        raise


def _providers(connection: Connection, query: str) -> frozenset[str]:
    doing = "list the resource providers"
    content = get(connection, "placement", f"/resource_providers?{query}", doing, version=PLACEMENT)
    with well_formed(doing):
        return frozenset(str(entry["uuid"]) for entry in content["resource_providers"])


def _nodes(connection: Connection) -> list[Node]:
    doing = "list hypervisors"
    entries = [
        entry
        for page in pages(connection, "/os-hypervisors/detail?", "hypervisors", doing, version=NOVA)
        for entry in page
    ]
    with well_formed(doing):
        return [
            Node(host=str(entry["service"]["host"]), node=str(entry["hypervisor_hostname"]), provider=str(entry["id"]))
            for entry in entries
        ]


class TenancyCloud:
    """The changes of a cloud; every method raises :class:`gpustack.base.errors.CloudError`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, name: str) -> int:
        """Create an aggregate and return its id."""
        doing = f"create the aggregate {name}"
        answer = self._send("POST", "compute", "/os-aggregates", doing, NOVA, {"aggregate": {"name": name}})
        with well_formed(doing):
            return int(answer.json()["aggregate"]["id"])

    def delete(self, aggregate: int) -> None:
        """Delete an aggregate."""
        self._send("DELETE", "compute", f"/os-aggregates/{aggregate}", "delete an aggregate", NOVA)

    def set_metadata(self, aggregate: int, values: Mapping[str, str | None]) -> None:
        """Set metadata; None removes a key."""
        self._action(aggregate, "set_metadata", {"metadata": dict(values)})

    def add_host(self, aggregate: int, host: str) -> None:
        """Add a host to an aggregate."""
        self._action(aggregate, "add_host", {"host": host})

    def remove_host(self, aggregate: int, host: str) -> None:
        """Remove a host from an aggregate."""
        self._action(aggregate, "remove_host", {"host": host})

    def _action(self, aggregate: int, action: str, body: Mapping[str, object]) -> None:
        doing = action.replace("_", " ") + " of an aggregate"
        self._send("POST", "compute", f"/os-aggregates/{aggregate}/action", doing, NOVA, {action: body})

    def add_trait(self, provider: str, trait: str) -> None:
        """Create a trait if Placement does not know it, and add it to a provider."""
        self._send("PUT", "placement", f"/traits/{trait}", f"create the trait {trait}", PLACEMENT)
        self._change_traits(provider, add=[trait])

    def remove_trait(self, provider: str, trait: str) -> None:
        """Remove a trait from a provider."""
        self._change_traits(provider, remove=[trait])

    def _change_traits(self, provider: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Replace the traits of a provider; nova-compute, which changes others, keeps them."""
        path, doing = f"/resource_providers/{provider}/traits", "change the traits of a host"
        for attempt in range(_ATTEMPTS):
            content = get(self._connection, "placement", path, doing, version=PLACEMENT)
            with well_formed(doing):
                traits = sorted({*content["traits"], *add} - set(remove))
                body = {
                    "resource_provider_generation": content["resource_provider_generation"],
                    "traits": traits,
                }
            try:
                self._send("PUT", "placement", path, doing, PLACEMENT, body)
            except Refused as error:
                if error.status != _CONFLICT or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _send(
        self, method: str, service: str, path: str, doing: str, version: str, body: Mapping[str, object] | None = None
    ) -> Any:  # noqa: ANN401 - a response
        with translated_errors(doing):
            proxy: Any = getattr(self._connection, service)
            answer = proxy.request(path, method, json=body, microversion=version)
            raise_refusal(answer, doing, None)
        return answer

"""Nova's API through openstacksdk, the only module of this package that sends requests.

Requests go through the compute proxy of the SDK's connection, at microversion 2.61 (Rocky). It is the first whose
listing includes the extra specs of all flavors, and it precedes the removals of 2.102.

Extra specs are written at 2.86 (Ussuri) if the cloud has it, so that Nova validates names and values. They are written
at 2.61 if every release accepts all of them. For each name in an unknown namespace, such as the mark, Nova compiles and
tries some hundred patterns, which is most of the cost of such a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError
from gpustack.cloud.session import Refused, compute_of, numbers, raise_refusal, translated_errors
from gpustack.offer.flavor.flavors import PresentFlavor, Sizes, needs_judging

if TYPE_CHECKING:
    from openstack.connection import Connection

_VERSION = "2.61"
_VALIDATED = "2.86"
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FORBIDDEN = "flavors are changed by administrators: use a cloud of clouds.yaml with the role admin"
_NOT_FOUND, _CONFLICT = 404, 409
_EPHEMERAL = "OS-FLV-EXT-DATA:ephemeral"
_PUBLIC = "os-flavor-access:is_public"


class FlavorCloud:
    """:class:`gpustack.offer.flavor.api.FlavorApi` of a real cloud; safe to call from several threads.

    :raises CloudError: if the compute API is older than microversion 2.61, or cannot be found.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._projects: dict[str, str] = {}
        self._compute, self._where, newest = compute_of(connection)
        if newest and newest < numbers(_VERSION):
            raise CloudError(
                f"the compute API ends at microversion {'.'.join(map(str, newest))}; flavors need {_VERSION} (Rocky)",
                where=self._where,
                remedy="flavors of older clouds are for `openstack flavor`",
            )
        self._writing = _VALIDATED if newest >= numbers(_VALIDATED) else _VERSION

    def flavors(self) -> tuple[PresentFlavor, ...]:
        """Return all flavors: one request for each thousand (``[api] max_limit``)."""
        flavors: list[PresentFlavor] = []
        query: dict[str, str] | None = {"is_public": "None"}
        while query:
            answer = self._call("GET", "/flavors/detail", "list flavors", params=query)
            try:
                flavors += [_flavor(entry, self._where) for entry in answer["flavors"]]
                more = any(link.get("rel") == "next" for link in answer.get("flavors_links", ()))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                problem = "can't list flavors: the answer is not from Nova"
                raise CloudError(problem, where=self._where, remedy="see what answers at this address") from error
            query = {"is_public": "None", "marker": flavors[-1].id} if more and answer["flavors"] else None
        return tuple(flavors)

    def get(self, flavor_id: str) -> PresentFlavor | None:
        answer = self._call("GET", f"/flavors/{flavor_id}", "read a flavor", missing_ok=True)
        return _flavor(answer["flavor"], self._where) if answer else None

    def access(self, flavor_id: str) -> frozenset[str]:
        answer = self._call("GET", f"/flavors/{flavor_id}/os-flavor-access", "list who may use a flavor")
        return frozenset(entry["tenant_id"] for entry in answer["flavor_access"])

    def users(self, flavor_id: str) -> int:
        count = 0
        query: dict[str, str] | None = {"all_tenants": "1", "flavor": flavor_id}
        while query:
            answer = self._call("GET", "/servers", "list the instances of a flavor", params=query)
            servers = answer["servers"]
            count += len(servers)
            more = servers and any(link.get("rel") == "next" for link in answer.get("servers_links", ()))
            query = {"all_tenants": "1", "flavor": flavor_id, "marker": servers[-1]["id"]} if more else None
        return count

    def project(self, name: str) -> str:
        if _ID.fullmatch(name):
            return name
        if name not in self._projects:
            self._projects[name] = self._look_up(name)
        return self._projects[name]

    def _look_up(self, name: str) -> str:
        with translated_errors(f"look up the project {name!r}"):
            answer = self._connection.identity.get("/projects", params={"name": name})
            raise_refusal(answer, f"look up the project {name!r}", None, forbidden=_FORBIDDEN)
            ids = [entry["id"] for entry in answer.json()["projects"]]
        if len(ids) != 1:
            several = f"{len(ids)} projects are" if ids else "no project is"
            raise CloudError(f"{several} called {name!r}", remedy="name the project by its id")
        return str(ids[0])

    def create(self, flavor_id: str, name: str, sizes: Sizes, *, public: bool, description: str) -> None:
        flavor = {
            "id": flavor_id,
            "name": name,
            "vcpus": sizes.vcpus,
            "ram": sizes.ram,
            "disk": sizes.disk,
            _EPHEMERAL: sizes.ephemeral,
            "swap": sizes.swap,
            _PUBLIC: public,
            "description": description,
        }
        self._call("POST", "/flavors", f"create {name}", json={"flavor": flavor})

    def set_extra_specs(self, flavor_id: str, specs: dict[str, str]) -> None:
        path = f"/flavors/{flavor_id}/os-extra_specs"
        version = self._writing if any(needs_judging(*extra_spec) for extra_spec in specs.items()) else _VERSION
        self._call("POST", path, "set extra specs", json={"extra_specs": specs}, microversion=version)

    def unset_extra_spec(self, flavor_id: str, key: str) -> None:
        self._call("DELETE", f"/flavors/{flavor_id}/os-extra_specs/{key}", f"remove {key}", missing_ok=True)

    def grant(self, flavor_id: str, project: str) -> None:
        body = {"addTenantAccess": {"tenant": project}}
        try:
            self._call("POST", f"/flavors/{flavor_id}/action", f"let the project {project} in", json=body)
        except Refused as error:
            if error.status != _CONFLICT:
                raise

    def revoke(self, flavor_id: str, project: str) -> None:
        body = {"removeTenantAccess": {"tenant": project}}
        path = f"/flavors/{flavor_id}/action"
        self._call("POST", path, f"shut the project {project} out", json=body, missing_ok=True)

    def describe(self, flavor_id: str, description: str) -> None:
        body = {"flavor": {"description": description}}
        self._call("PUT", f"/flavors/{flavor_id}", "change the description", json=body)

    def delete(self, flavor_id: str) -> None:
        self._call("DELETE", f"/flavors/{flavor_id}", "delete a flavor", missing_ok=True)

    def _call(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        microversion: str = _VERSION,
        missing_ok: bool = False,
        **body: Any,  # noqa: ANN401 - requests' own
    ) -> Any:  # noqa: ANN401 - JSON
        if not {".", ".."}.isdisjoint(path.split("/")):  # HTTP clients shorten such a path to that of another resource
            raise CloudError(f"can't {doing}: an id or a name of dots is no part of an address", where=self._where)
        with translated_errors(doing):
            answer = self._compute.request(path, method, microversion=microversion, raise_exc=False, **body)
            if missing_ok and answer.status_code == _NOT_FOUND:
                return None
            raise_refusal(answer, doing, self._where, forbidden=_FORBIDDEN)
            return answer.json() if answer.content else None


def _flavor(entry: Mapping[str, Any], where: str | None) -> PresentFlavor:
    if "extra_specs" not in entry:
        raise CloudError(
            "the API does not show the extra specs of flavors",
            where=where,
            remedy="the policy os_compute_api:os-flavor-extra-specs:index does not let this user read them",
        )
    return PresentFlavor(
        id=str(entry["id"]),
        name=str(entry["name"]),
        sizes=Sizes(
            vcpus=int(entry["vcpus"]),
            ram=int(entry["ram"]),
            disk=int(entry["disk"]),
            ephemeral=int(entry.get(_EPHEMERAL) or 0),
            swap=int(entry.get("swap") or 0),
        ),
        public=bool(entry.get(_PUBLIC, True)),
        description=str(entry.get("description") or ""),
        extra_specs={str(key): str(value) for key, value in entry["extra_specs"].items()},
    )

"""Keystone's and Placement's API through openstacksdk, the only module of this package that sends requests.

Nova's limits belong to the service and the region of the endpoint that ``[oslo_limit] endpoint_id`` names, which is the
public endpoint of Nova in the region of clouds.yaml. Before 2026.2, Keystone lists the limits of all projects only with
a token for the system, and of the own project otherwise. Nova and Placement want a token for a project.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpustack.base import hostnames
from gpustack.base.errors import CloudError
from gpustack.cloud.session import raise_refusal, translated_errors
from gpustack.offer.quota.model import CLASS, Limit, Present, Project

if TYPE_CHECKING:
    from openstack.connection import Connection

_USAGES = "1.9"
"""Placement's microversion for the use of a project (Pike)."""
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_FOUND = 404
_FORBIDDEN = "limits are changed by administrators: use a cloud of clouds.yaml with the role admin"
_PROJECT_SCOPE = ("project_name", "project_id", "project_domain_name", "project_domain_id", "domain_name", "domain_id")


class LimitsCloud:
    """:class:`gpustack.offer.quota.api.LimitsApi` of a real cloud."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._system: Connection | None = None
        self._place: dict[str, str] | None = None

    def present(self) -> Present:
        query = "&".join(f"{key}={quote(value)}" for key, value in self._of_nova().items())
        model = self._identity("GET", "/limits/model", "read the enforcement model")["model"]["name"]
        defaults = self._identity("GET", f"/registered_limits?{query}", "list registered limits")["registered_limits"]
        limits, complete = self._limits(f"/limits?{query}")
        return Present(
            defaults=tuple(_limit(entry, "default_limit") for entry in defaults if _is_class(entry)),
            limits=tuple(_limit(entry, "resource_limit") for entry in limits if _is_class(entry)),
            complete=complete,
            model=str(model),
        )

    def _limits(self, path: str) -> tuple[list[dict[str, Any]], bool]:
        """The limits of all projects, and whether Keystone certainly listed all."""
        own: str | None = None
        try:
            with translated_errors("sign in to the system"):
                self._system = self._connection.connect_as(system_scope="all", **dict.fromkeys(_PROJECT_SCOPE, ""))
                self._system.identity.get_endpoint_data()
                answer = self._system.identity.get(path)
                raise_refusal(answer, "list limits", None, forbidden=_FORBIDDEN)
                return list(answer.json()["limits"]), True
        except CloudError:
            self._system = None
        with translated_errors("sign in"):
            own = self._connection.current_project_id
        limits = list(self._identity("GET", path, "list limits")["limits"])
        return limits, any(entry.get("project_id") not in (own, None) for entry in limits)

    def own(self) -> tuple[Present, Project]:
        """Return the defaults and the limits of the project of the token, with its use: every user may."""
        with translated_errors("sign in"):
            current = self._connection.current_project
        project = Project(id=str(current.id or ""), name=str(current.name or current.id or ""))
        if not project.id:
            remedy = "name a project in clouds.yaml or OS_PROJECT_NAME, or use --all-projects"
            raise CloudError("the token is for no project", remedy=remedy)
        defaults = self._identity("GET", "/registered_limits", "list registered limits")["registered_limits"]
        limits = self._identity("GET", f"/limits?project_id={project.id}", "list limits")["limits"]
        region = self._connection.config.get_region_name("identity") or self._connection.config.get_region_name()
        present = Present(
            defaults=tuple(_limit(e, "default_limit") for e in defaults if _is_class(e) and _is_in(e, region)),
            limits=tuple(_limit(e, "resource_limit") for e in limits if _is_class(e) and _is_in(e, region)),
            used={project.id: self.used(project.id)},
        )
        return present, project

    def all_projects(self) -> tuple[Project, ...]:
        """Return all projects."""
        return tuple(map(_project, self._identity("GET", "/projects", "list projects")["projects"]))

    def projects(self, name: str) -> tuple[Project, ...]:
        doing = f"look up the project {name!r}"
        found = self._identity("GET", f"/projects?name={quote(name, safe='')}", doing)["projects"]
        if not found and _ID.fullmatch(name):
            answer = self._identity("GET", f"/projects/{name}", doing, missing_ok=True)
            found = [answer["project"]] if answer else []
        return tuple(map(_project, found))

    def used(self, project: str) -> Mapping[str, int]:
        usages = self._placement(f"/usages?project_id={project}", "read the use of a project")["usages"]
        return {str(name): int(number) for name, number in usages.items()}

    def inventories(self, hosts: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        doing = "read the inventories of hosts"
        totals: dict[str, dict[str, int]] = {}
        wanted = {hostnames.key(host): host for host in hosts}
        providers = self._placement("/resource_providers", doing)["resource_providers"]
        for provider in providers:
            host = wanted.get(hostnames.key(str(provider["name"])))
            if host is not None:
                answer = self._placement(f"/resource_providers/{provider['uuid']}/inventories", doing)
                totals[host] = {str(name): int(of["total"]) for name, of in answer["inventories"].items()}
        return totals

    def create(self, resource_class: str, project: str | None, limit: int, description: str) -> None:
        entry: dict[str, Any] = {
            **self._of_nova(),
            "resource_name": f"{CLASS}{resource_class}",
            "description": description,
        }
        if project is None:
            body = {"registered_limits": [{**entry, "default_limit": limit}]}
            self._identity("POST", "/registered_limits", "create a registered limit", json=body)
        else:
            body = {"limits": [{**entry, "project_id": project, "resource_limit": limit}]}
            self._identity("POST", "/limits", "create a limit", json=body)

    def change(self, limit: Limit, value: int) -> None:
        if limit.project is None:
            body = {"registered_limit": {"default_limit": value}}
            self._identity("PATCH", f"/registered_limits/{limit.id}", "change a registered limit", json=body)
        else:
            body = {"limit": {"resource_limit": value}}
            self._identity("PATCH", f"/limits/{limit.id}", "change a limit", json=body)

    def delete(self, limit: Limit) -> None:
        kind = "registered_limits" if limit.project is None else "limits"
        self._identity("DELETE", f"/{kind}/{limit.id}", "delete a limit", missing_ok=True)

    def _placement(self, path: str, doing: str) -> Any:  # noqa: ANN401 - JSON
        with translated_errors(doing):
            answer = self._connection.placement.get(path, microversion=_USAGES)
            raise_refusal(answer, doing, None)
            return answer.json()

    def _of_nova(self) -> dict[str, str]:
        """The service and the region of Nova's limits."""
        if self._place is None:
            doing = "find Nova in the catalog"
            services = self._identity("GET", "/services?type=compute", doing)["services"]
            if len(services) != 1:
                count = f"{len(services)} services of type compute" if services else "no service of type compute"
                remedy = "run `openstack service list`; Nova's limits belong to exactly one service"
                raise CloudError(f"Keystone has {count}; expected one", remedy=remedy)
            service = str(services[0]["id"])
            found = self._identity("GET", f"/endpoints?service_id={service}&interface=public", doing)["endpoints"]
            self._place = {"service_id": service, "region_id": self._region({str(e["region_id"]) for e in found})}
        return self._place

    def _region(self, regions: set[str]) -> str:
        named = self._connection.config.get_region_name("identity") or self._connection.config.get_region_name()
        if named in regions or (not named and len(regions) == 1):
            return str(named or next(iter(regions)))
        listed = ", ".join(sorted(regions)) or "none"
        raise CloudError(
            f"Nova has no public endpoint in the region {named or '(not set)'}; its regions: {listed}",
            remedy="set region_name in clouds.yaml or OS_REGION_NAME to a region of Nova",
        )

    def _identity(self, method: str, path: str, doing: str, *, missing_ok: bool = False, **body: Any) -> Any:  # noqa: ANN401
        connection = self._connection if self._system is None else self._system
        with translated_errors(doing):
            answer = connection.identity.request(path, method, raise_exc=False, **body)
            if missing_ok and answer.status_code == _NOT_FOUND:
                return None
            raise_refusal(answer, doing, None, forbidden=_FORBIDDEN)
            return answer.json() if answer.content else None


def _is_class(entry: Mapping[str, Any]) -> bool:
    return str(entry["resource_name"]).startswith(CLASS)


def _is_in(entry: Mapping[str, Any], region: str | None) -> bool:
    return not region or entry.get("region_id") in (region, None)


def _project(entry: Mapping[str, Any]) -> Project:
    return Project(id=str(entry["id"]), name=str(entry["name"]), domain=str(entry.get("domain_id") or ""))


def _limit(entry: Mapping[str, Any], key: str) -> Limit:
    return Limit(
        id=str(entry["id"]),
        resource_class=str(entry["resource_name"]).removeprefix(CLASS),
        limit=int(entry[key]),
        project=str(entry["project_id"]) if entry.get("project_id") else None,
        description=str(entry.get("description") or ""),
    )

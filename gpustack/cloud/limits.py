"""Nova's limits in Keystone: the defaults of all projects, the limits of projects, and their use in Placement.

Nova's limits belong to the service and the region of the endpoint that ``[oslo_limit] endpoint_id`` names, which is the
public endpoint of Nova in the region of clouds.yaml. Before 2026.2, Keystone lists the limits of all projects only with
a token for the system, and of the own project otherwise. Nova and Placement want a token for a project.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from gpustack.base import hostnames
from gpustack.base.errors import CloudError
from gpustack.cloud import Connection, identity, placement
from gpustack.cloud.identity import Project
from gpustack.cloud.session import MISSING, connect_as, each, get, request, tolerating, translated_errors, well_formed

_FORBIDDEN = "limits are changed by administrators: use a cloud of clouds.yaml with the role admin"
_PROJECT_SCOPE = ("project_name", "project_id", "project_domain_name", "project_domain_id", "domain_name", "domain_id")
CLASS = "class:"
"""The prefix of the limits of resource classes (``nova/limit/placement.py``)."""
MARK = "[gpustack]"
"""The end of the description of limits that gpustack created."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit of Nova in Keystone.

    :ivar resource_class: the class, without Keystone's prefix.
    :ivar project: the project's id; None for the default of all projects (a registered limit).
    """

    id: str
    resource_class: str
    limit: int
    project: str | None = None
    description: str = ""

    @property
    def ours(self) -> bool:
        """Whether gpustack created it."""
        return self.description.endswith(MARK)


@dataclass(frozen=True, kw_only=True)
class Present:
    """The limits and the use of a cloud.

    :ivar defaults: the default of each resource class.
    :ivar limits: the limits of projects.
    :ivar complete: whether ``limits`` has those of all projects.
    :ivar model: Keystone's enforcement model.
    :ivar used: the units in use, by project id and resource class.
    """

    defaults: tuple[Limit, ...] = ()
    limits: tuple[Limit, ...] = ()
    complete: bool = True
    model: str = "flat"
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class LimitsCloud:
    """The limits of projects in Keystone, and their use in Placement.

    Every method raises :class:`gpustack.cloud.session.Refused` or :class:`gpustack.cloud.session.Unanswered`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._system: Connection | None = None
        self._signed_in = False

    def present(self) -> Present:
        """Return the limits of Nova's resource classes, without the use."""
        query = urlencode(self._of_nova)
        with well_formed("read limits"):
            model = str(self._get("/limits/model", "read the enforcement model")["model"]["name"])
            defaults = self._get(f"/registered_limits?{query}", "list registered limits")["registered_limits"]
            limits, complete = self._limits(f"/limits?{query}")
            return Present(
                defaults=_of_classes(defaults, "default_limit"),
                limits=_of_classes(limits, "resource_limit"),
                complete=complete,
                model=model,
            )

    def _limits(self, path: str) -> tuple[list[dict[str, Any]], bool]:
        """The limits of all projects, and whether Keystone certainly listed all."""
        try:
            self._sign_in()
            if self._system is not None:
                return list(self._get(path, "list limits")["limits"]), True
        except CloudError:
            self._system = None
        with translated_errors("sign in"):
            own = self._connection.current_project_id
        limits = list(self._get(path, "list limits")["limits"])
        return limits, any(entry.get("project_id") not in (own, None) for entry in limits)

    def _sign_in(self) -> None:
        """Ask for a token for the system, once."""
        if self._signed_in:
            return
        self._signed_in = True
        with contextlib.suppress(CloudError), translated_errors("sign in to the system"):
            system = connect_as(self._connection, system_scope="all", **dict.fromkeys(_PROJECT_SCOPE, ""))
            system.identity.get_endpoint_data()
            self._system = system

    def find(self, resource_class: str, project: str | None) -> Limit | None:
        """Return the limit of a project, or the default of all projects; None if there is none: one request.

        :raises CloudError: if it cannot be read.
        """
        self._sign_in()
        kind, key = _kind(project)
        owner = {} if project is None else {"project_id": project}
        query = urlencode({**self._of_nova, "resource_name": f"{CLASS}{resource_class}", **owner})
        doing = "read a limit"
        with well_formed(doing):
            return next((_limit(entry, key) for entry in self._get(f"/{kind}s?{query}", doing)[f"{kind}s"]), None)

    def own(self) -> tuple[Present, Project]:
        """Return the defaults and the limits of the project of the token, with its use: every user may."""
        with translated_errors("sign in"):
            current = self._connection.current_project
        project = Project(id=str(current.id or ""), name=str(current.name or current.id or ""))
        if not project.id:
            remedy = "name a project in clouds.yaml or OS_PROJECT_NAME, or use --all-projects"
            raise CloudError("the token is for no project", remedy=remedy)
        region = self._own_region()
        with well_formed("read limits"):
            defaults = self._get("/registered_limits", "list registered limits")["registered_limits"]
            limits = self._get(f"/limits?project_id={project.id}", "list limits")["limits"]
            present = Present(
                defaults=_of_classes(defaults, "default_limit", region),
                limits=_of_classes(limits, "resource_limit", region),
                used={project.id: self.used(project.id)},
            )
        return present, project

    def projects(self, ref: str = "") -> tuple[Project, ...]:
        """Return the projects that an id or a name means; all without one."""
        return identity.projects(self._reading, ref)

    def named_project(self, ref: str) -> Project:
        """Return the only project that an id or a name means."""
        return identity.project(self._reading, ref)

    def used(self, project: str) -> Mapping[str, int]:
        """Return the units that a project uses, by resource class."""
        return placement.project_usage(self._connection, project)

    def inventories(self, hosts: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the totals of each resource class of these hosts; without hosts that Placement does not have."""
        wanted = {hostnames.key(host): host for host in hosts}
        known = {
            provider.uuid: wanted[hostnames.key(provider.name)]
            for provider in placement.listed(self._connection)
            if hostnames.key(provider.name) in wanted
        }
        answers = each(lambda uuid: placement.inventory(self._connection, uuid), known)
        return {host: answer.totals for host, answer in zip(known.values(), answers, strict=True) if answer}

    def create(self, resource_class: str, project: str | None, limit: int, description: str) -> None:
        """Create a limit; the default of all projects if ``project`` is None."""
        kind, key = _kind(project)
        of_class = {**self._of_nova, "resource_name": f"{CLASS}{resource_class}", "description": description}
        entry = {**of_class, **({} if project is None else {"project_id": project}), key: limit}
        self._send("POST", f"/{kind}s", f"create a {kind.replace('_', ' ')}", {f"{kind}s": [entry]})

    def change(self, limit: Limit, value: int) -> None:
        """Change a limit."""
        kind, key = _kind(limit.project)
        self._send("PATCH", f"/{kind}s/{limit.id}", f"change a {kind.replace('_', ' ')}", {kind: {key: value}})

    def delete(self, limit: Limit) -> None:
        """Delete a limit; a missing one is not an error."""
        with tolerating(MISSING):
            self._send("DELETE", f"/{_kind(limit.project)[0]}s/{limit.id}", "delete a limit")

    @cached_property
    def _of_nova(self) -> dict[str, str]:
        """The service and the region of Nova's limits."""
        doing = "find Nova in the catalog"
        with well_formed(doing):
            services = [str(entry["id"]) for entry in self._get("/services?type=compute", doing)["services"]]
        if len(services) != 1:
            count = f"{len(services)} services of type compute" if services else "no service of type compute"
            remedy = "run `openstack service list`; Nova's limits belong to exactly one service"
            raise CloudError(f"Keystone has {count}; expected one", remedy=remedy)
        found = self._get(f"/endpoints?service_id={services[0]}&interface=public", doing)
        with well_formed(doing):
            regions = {str(entry["region_id"]) for entry in found["endpoints"]}
        return {"service_id": services[0], "region_id": self._region(regions)}

    def _region(self, regions: set[str]) -> str:
        named = self._own_region()
        if named in regions or (not named and len(regions) == 1):
            return str(named or next(iter(regions)))
        listed = ", ".join(sorted(regions)) or "none"
        what = f"Nova has no public endpoint in the region {named or '(not set)'}; its regions: {listed}"
        raise CloudError(what, remedy="set region_name in clouds.yaml or OS_REGION_NAME to a region of Nova")

    def _own_region(self) -> str | None:
        config = self._connection.config
        return config.get_region_name("identity") or config.get_region_name()

    @property
    def _reading(self) -> Connection:
        """The connection for Keystone: with a token for the system if the user may have one."""
        return self._system or self._connection

    def _get(self, path: str, doing: str) -> Any:  # noqa: ANN401 - JSON
        return get(self._reading, "identity", path, doing)

    def _send(self, method: str, path: str, doing: str, body: object = None) -> None:
        request(self._reading, "identity", method, path, doing, body=body, forbidden=_FORBIDDEN)


def _kind(project: str | None) -> tuple[str, str]:
    """The kind of a limit, and the key of its value; a default has no project."""
    return ("registered_limit", "default_limit") if project is None else ("limit", "resource_limit")


def _of_classes(entries: Iterable[Mapping[str, Any]], key: str, region: str | None = None) -> tuple[Limit, ...]:
    classes = (entry for entry in entries if str(entry["resource_name"]).startswith(CLASS))
    return tuple(_limit(entry, key) for entry in classes if not region or entry.get("region_id") == region)


def _limit(entry: Mapping[str, Any], key: str) -> Limit:
    return Limit(
        id=str(entry["id"]),
        resource_class=str(entry["resource_name"]).removeprefix(CLASS),
        limit=int(entry[key]),
        project=str(entry["project_id"]) if entry.get("project_id") else None,
        description=str(entry.get("description") or ""),
    )

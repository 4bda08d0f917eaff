"""Nova's flavors: list, create, change and delete them, with extra specs and access.

Extra specs are written at a microversion at which Nova validates names and values, if the cloud has it. They are not
validated if every release accepts all of them: for each name in an unknown namespace, such as the mark, Nova compiles
and tries some hundred patterns, which is most of the cost of such a request.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from gpustack.base.errors import CloudError
from gpustack.cloud import Connection, identity
from gpustack.cloud.microversions import FLAVOR_SPECS, VALIDATED_SPECS, Microversion
from gpustack.cloud.session import CONFLICT, MISSING, find, get, listing, newest, request, tolerating, well_formed
from gpustack.spec import extra_specs as keys

_EPHEMERAL = "OS-FLV-EXT-DATA:ephemeral"
_PUBLIC = "os-flavor-access:is_public"
_KNOWN = {
    keys.ALIAS: r"[^\s:,]+:[1-9][0-9]*(,[^\s:,]+:[1-9][0-9]*)*",
    keys.AFFINITY: "required|preferred|legacy",
    keys.NUMA_NODES: "[1-9][0-9]*",
    keys.CPU_POLICY: "shared|dedicated",
    keys.PAGE_SIZE: "small|large|any|[0-9]+([kKMGT]i?)?(b|bit|B)?",
    keys.HIDE: "true",
    keys.OLD_HIDE: "true",
    keys.MAXPHYSADDR: "emulate|passthrough",
    keys.MAXPHYSADDR_BITS: "[1-9][0-9]*",
}
"""Extra specs that gpustack writes, with patterns of the values that every release accepts."""
_UNVALIDATED = {keys.MAXPHYSADDR, keys.MAXPHYSADDR_BITS}
"""Extra specs that Nova reads and refuses where it validates: up to 2026.2, it has no validator for them."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a flavor, which cannot be changed. In Nova's units: memory and swap in MiB, disks in GiB."""

    vcpus: int
    ram: int
    disk: int
    ephemeral: int = 0
    swap: int = 0

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{self.vcpus} vCPU{'s'[: self.vcpus != 1]}", f"{readable(self.ram)} RAM", f"{self.disk} GiB disk"]
        parts += [f"{self.ephemeral} GiB ephemeral"] if self.ephemeral else []
        parts += [f"{readable(self.swap)} swap"] if self.swap else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Flavor:
    """A flavor in Nova.

    :ivar access: ids of the projects that may use it; None if not read.
    :ivar rxtx_factor: of the old driver for XenServer; gpustack restores it only.
    """

    id: str
    name: str
    sizes: Sizes
    public: bool = True
    description: str = ""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    access: frozenset[str] | None = None
    rxtx_factor: float = 1.0

    def to_dict(self) -> dict[str, object]:
        return {
            "id": self.id,
            "name": self.name,
            **self.sizes.to_dict(),
            "public": self.public,
            "description": self.description,
            "extra_specs": dict(self.extra_specs),
            "access": None if self.access is None else sorted(self.access),
        }


F = TypeVar("F", bound=Flavor)


class FlavorCloud(Generic[F]):
    """The requests on flavors, one for each method; listings may take several. Safe to call from several threads.

    :meth:`create` and the methods after it change something. Every method raises
    :class:`gpustack.cloud.session.Refused` or :class:`gpustack.cloud.session.Unanswered`.

    :param kind: the class of the flavors that it returns.
    :param lookup: finds projects; None to ask Keystone.
    """

    def __init__(self, connection: Connection, kind: type[F], lookup: identity.Lookup | None = None) -> None:
        self._connection = connection
        self._lookup = lookup
        self._kind = kind

    @cached_property
    def _writing(self) -> Microversion:
        return newest(self._connection, FLAVOR_SPECS, VALIDATED_SPECS, doing="write extra specs")

    def flavors(self) -> tuple[F, ...]:
        """Return all flavors: one request for each thousand."""
        doing = "list flavors"
        path = "/flavors/detail?is_public=None"
        entries = listing(self._connection, "compute", path, "flavors", doing, version=FLAVOR_SPECS)
        with well_formed(doing):
            return tuple(map(self._flavor, entries))

    def get(self, flavor_id: str) -> F | None:
        """Return one flavor; None if it does not exist."""
        doing = "read a flavor"
        content = find(self._connection, "compute", f"/flavors/{flavor_id}", doing, version=FLAVOR_SPECS)
        with well_formed(doing):
            return None if content is None else self._flavor(content["flavor"])

    def access(self, flavor_id: str) -> frozenset[str]:
        """Return the ids of the projects that may use a private flavor."""
        doing = "list who may use a flavor"
        path = f"/flavors/{flavor_id}/os-flavor-access"
        content = get(self._connection, "compute", path, doing, version=FLAVOR_SPECS)
        with well_formed(doing):
            return frozenset(str(entry["tenant_id"]) for entry in content["flavor_access"])

    def users(self, flavor_id: str) -> int:
        """Return the number of instances of a flavor, in all projects."""
        path, doing = f"/servers?all_tenants=1&flavor={quote(flavor_id, safe='')}", "list the instances of a flavor"
        return len(listing(self._connection, "compute", path, "servers", doing, version=FLAVOR_SPECS))

    def project(self, name: str) -> str:
        """Return the id of a project, by its id or name."""
        return identity.project_id(self._connection, name, self._lookup)

    def create(
        self, flavor_id: str, name: str, sizes: Sizes, *, public: bool, description: str, rxtx_factor: float = 1.0
    ) -> None:
        """Create a flavor without extra specs and projects."""
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
            **({} if rxtx_factor == 1.0 else {"rxtx_factor": rxtx_factor}),
        }
        self._send("POST", "/flavors", f"create {name}", {"flavor": flavor})

    def set_extra_specs(self, flavor_id: str, specs: Mapping[str, str], *, restored: bool = False) -> None:
        """Set extra specs atomically, except those that no release validates: they follow if Nova accepts the others.

        :param restored: whether the flavor had them before: Nova may have accepted them without validation.
        """
        path = f"/flavors/{flavor_id}/os-extra_specs"
        if not restored and any(needs_judging(*extra_spec) for extra_spec in specs.items()):
            body = {"extra_specs": {k: v for k, v in specs.items() if k not in _UNVALIDATED or needs_judging(k, v)}}
            self._send("POST", path, "set extra specs", body, version=self._writing)
            specs = {key: value for key, value in specs.items() if key not in body["extra_specs"]}
        if specs:
            self._send("POST", path, "set extra specs", {"extra_specs": specs})

    def unset_extra_spec(self, flavor_id: str, key: str) -> None:
        """Remove an extra spec; a missing one is not an error."""
        with tolerating(MISSING):
            self._send("DELETE", f"/flavors/{flavor_id}/os-extra_specs/{key}", f"remove {key}")

    def grant(self, flavor_id: str, project: str) -> None:
        """Give a project access to a flavor; existing access is not an error."""
        body, doing = {"addTenantAccess": {"tenant": project}}, f"let the project {project} in"
        with tolerating(CONFLICT):
            self._send("POST", f"/flavors/{flavor_id}/action", doing, body)

    def revoke(self, flavor_id: str, project: str) -> None:
        """Remove a project's access to a flavor; missing access is not an error."""
        body, doing = {"removeTenantAccess": {"tenant": project}}, f"shut the project {project} out"
        with tolerating(MISSING):
            self._send("POST", f"/flavors/{flavor_id}/action", doing, body)

    def describe(self, flavor_id: str, description: str) -> None:
        """Change the description."""
        body = {"flavor": {"description": description}}
        self._send("PUT", f"/flavors/{flavor_id}", "change the description", body)

    def delete(self, flavor_id: str) -> None:
        """Delete a flavor; a missing one is not an error."""
        with tolerating(MISSING):
            self._send("DELETE", f"/flavors/{flavor_id}", "delete a flavor")

    def _send(
        self, method: str, path: str, doing: str, body: object = None, version: Microversion = FLAVOR_SPECS
    ) -> None:
        request(self._connection, "compute", method, path, doing, version=version, body=body)

    def _flavor(self, entry: Mapping[str, Any]) -> F:
        if "extra_specs" not in entry:
            remedy = "the policy os_compute_api:os-flavor-extra-specs:index does not let this user read them"
            raise CloudError("the API does not show the extra specs of flavors", remedy=remedy)
        return self._kind(
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
            rxtx_factor=float(entry.get("rxtx_factor") or 1.0),
            extra_specs={str(key): str(value) for key, value in entry["extra_specs"].items()},
        )


def needs_judging(key: str, value: str) -> bool:
    """Whether Nova should validate an extra spec, because not every release accepts it."""
    if key.startswith(keys.NAMESPACE):
        return False
    return key not in _KNOWN or re.fullmatch(_KNOWN[key], value) is None


def readable(mib: int) -> str:
    """Format an amount in MiB: ``32 GiB``, ``1.5 GiB``, ``512 MiB``."""
    return f"{mib / 1024:g} GiB" if mib >= 1024 and mib % 256 == 0 else f"{mib} MiB"

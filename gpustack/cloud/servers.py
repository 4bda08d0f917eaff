"""Read Nova's instances: with the devices that their flavors request, what happened to them, and their migrations."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from gpustack.base.by_key import sums
from gpustack.base.text import counted
from gpustack.cloud import Connection, microversions
from gpustack.cloud.session import FORBIDDEN, find, newest, pages, request, tolerating, well_formed
from gpustack.cloud.session import listing as list_all
from gpustack.spec.extra_specs import ALIAS, alias_names, as_number, parse_alias, required_traits

_SOFT_DELETED = "soft_deleted=1"
"""Include instances that wait for ``reclaim_instance_interval``: they keep their devices. Nova hides them otherwise."""
_MOVING = ("MIGRATING", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "REBUILD", "BUILD")
_PAGES = 50
"""The most pages of migrations to search: Nova keeps them indefinitely."""
_DEVICE_CLASS = re.compile(r"resources[\w-]*:(VGPU|CUSTOM_[A-Z0-9_]+)")
_OVER = frozenset({"confirmed", "reverted", "failed", "completed", "cancelled", "done", "error", "finished"})
"""Statuses without work under way; a ``finished`` migration waits for confirmation."""
_NO_DETAILS = "Nova reports only that it failed"
POLICY = "the policy os_compute_api:os-flavor-extra-specs:index does not let this user read them"


@dataclass(frozen=True, kw_only=True)
class Disks:
    """The disks of an instance.

    :ivar image: whether the root disk was made from an image; otherwise the instance boots from a volume.
    :ivar root: the size of the root disk in GiB; 0 for that of the image.
    :ivar lost: the disks of the flavor that no snapshot contains, such as ``swap disk of 512 MiB``.
    """

    image: bool = True
    root: int = 0
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Event:
    """An action of an instance, or a migration.

    :ivar at: when it began, naive UTC; None if unknown.
    :ivar what: the action (``create``), or the kind of migration with its status.
    :ivar user: the id of the user who requested it.
    :ivar failed: whether the action failed.
    :ivar request: the id of the request that began the action.
    :ivar unfinished: whether it is a migration on which Nova still works.
    """

    at: datetime | None = None
    server: str = ""
    what: str
    user: str = ""
    source: str = ""
    target: str = ""
    failed: bool = False
    request: str = ""
    unfinished: bool = False

    def to_dict(self) -> dict[str, object]:
        """The event as plain data."""
        return {
            "at": f"{self.at:%FT%TZ}" if self.at else None,
            "instance": self.server,
            "event": f"{self.what} (failed)" if self.failed else self.what,
            "user": self.user or None,
            "source": self.source or None,
            "target": self.target or None,
        }


@dataclass(frozen=True, kw_only=True)
class Server:
    """An instance.

    :ivar host: the host of its nova-compute; empty if it has none, or if the user may not see it.
    :ivar node: the hypervisor's name; usually that of the host.
    :ivar status: Nova's status (``ACTIVE``, ``SHUTOFF``); lower-case ``vm_state`` if read from a database.
    :ivar devices: the number of requested devices, by alias.
    :ivar classes: the requested amounts of ``VGPU`` and of custom resource classes, which may be those of vGPUs.
    :ivar demands: the parts of its flavor that need devices of the host: aliases (``k4200``), ``VGPU``, custom resource
        classes, accelerator profiles.
    :ivar traits: the traits that its flavor required when it was booted or resized.
    :ivar since: the time since which it has its present devices, naive UTC; None if unknown.
    :ivar placed: whether it is on a host, also if the user may not see which.
    :ivar moving: whether it has a task, or waits for the confirmation of a move: its allocations may be in two places.
    :ivar task: Nova's task state; empty without a task. This and the following are known from Nova's API only.
    :ivar power: Nova's power state: 0 unknown, 1 running, 3 paused, 4 shut down, 6 crashed, 7 suspended.
    :ivar metadata: the metadata, which its users can write.
    :ivar actions: the instance actions, newest first; None if not read.
    """

    id: str
    name: str = ""
    project: str = ""
    user: str = ""
    host: str = ""
    node: str = ""
    status: str = ""
    flavor: str = ""
    devices: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)
    demands: tuple[str, ...] = ()
    traits: frozenset[str] = frozenset()
    since: datetime | None = None
    placed: bool = True
    moving: bool = False
    task: str = ""
    power: int = 1
    locked: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    disks: Disks = field(default_factory=Disks)
    actions: tuple[Event, ...] | None = None

    @property
    def count(self) -> int:
        """The number of requested devices."""
        return sum(self.devices.values())

    @property
    def place(self) -> str:
        """The name of the compute node, as in Placement."""
        return self.node or self.host

    @property
    def label(self) -> str:
        """The name and the id, for messages."""
        return f"{self.name} ({self.id})"


@dataclass(frozen=True, kw_only=True)
class ActionStep:
    """A step of an action, such as ``compute__do_build_and_run_instance``.

    :ivar host: empty if unknown.
    :ivar error: Nova's reason; empty if it did not fail.
    """

    name: str
    host: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A migration of an instance.

    :ivar uuid: its consumer in Placement.
    :ivar server: the id of the instance.
    :ivar kind: the migration type.
    :ivar at: when it began, naive UTC; None if unknown.
    :ivar idle: whether the record is unfinished while Nova does nothing with the instance; False if not compared.
    """

    uuid: str = ""
    server: str
    kind: str
    status: str
    source: str
    target: str
    at: datetime | None = None
    idle: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether Nova still works on it."""
        return self.status.lower() not in _OVER


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The instances that the user may see, including those without devices.

    :ivar everything: whether they are those of all projects.
    :ivar gaps: what is missing, and why.
    :ivar hidden: the number of instances whose devices are unknown, because the user may not read their flavors.
    """

    servers: tuple[Server, ...]
    everything: bool
    gaps: tuple[str, ...] = ()
    hidden: int = 0


def listing(cloud: Connection, query: str = "") -> Listing:
    """List the instances of all projects, or if the user may not, those of the user's project.

    :param query: selects instances, such as ``name=gpu1``; empty for all.
    :raises CloudError: if Nova cannot be reached, refuses, or is older than microversion 2.47.
    """
    version = newest(cloud, microversions.EMBEDDED_FLAVOR, microversions.SILENT_CELLS, doing="list instances")
    with tolerating(FORBIDDEN):
        everywhere = "&".join(filter(None, ("all_tenants=1", _SOFT_DELETED, query)))
        return _listing(_entries(cloud, everywhere, version), everything=True)
    return _listing(_entries(cloud, query, version), everything=False)


def matching(cloud: Connection, query: str) -> Listing:
    """List instances of all projects that a query selects, such as ``host=gpu1``.

    :raises CloudError: if Nova cannot be reached, refuses, or is older than microversion 2.69.
    """
    return _listing(_entries(cloud, f"all_tenants=1&{query}", microversions.SILENT_CELLS), everything=True)


def _entries(cloud: Connection, query: str, version: microversions.Microversion) -> list[Mapping[str, Any]]:
    return list_all(cloud, "compute", f"/servers/detail?{query}", "servers", "list instances", version=version)


def _listing(entries: Collection[Mapping[str, Any]], everything: bool) -> Listing:
    with well_formed("list instances"):
        known = [entry for entry in entries if "flavor" in entry]
        silent = len(entries) - len(known)
        hidden = sum("extra_specs" not in entry["flavor"] for entry in known)
        servers = tuple(map(server_of, known))
    gaps = []
    if not everything:
        gaps.append("the user may list the instances of one project only: the others' are missing")
    if silent:
        gaps.append(f"a cell does not answer: {counted(silent, 'instance')} listed without flavor and host")
    if hidden:
        gaps.append(f"the flavors of {counted(hidden, 'instance')} have no extra specs: {POLICY}")
    if any(server.placed and not server.host for server in servers if server.devices):
        gaps.append("the user may not see the hosts of instances")
    return Listing(servers=servers, everything=everything, gaps=tuple(gaps), hidden=hidden)


def failed(cloud: Connection, most: int) -> list[str]:
    """Return the ids of the instances that failed last, of all projects if the user may list them.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    query, doing = "status=ERROR&sort_key=updated_at&sort_dir=desc", "list instances"

    def ids(query: str) -> list[str]:
        entries = next(pages(cloud, "compute", f"/servers?{query}", "servers", doing))
        with well_formed(doing):
            return [str(entry["id"]) for entry in entries[:most]]

    with tolerating(FORBIDDEN):
        return ids(f"all_tenants=1&{query}")
    return ids(query)


def server(cloud: Connection, uuid: str) -> Server | None:
    """Return one instance as it is now; None if it does not exist. In a cell that does not answer, it is ``UNKNOWN``.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read an instance"
    version = newest(cloud, microversions.EMBEDDED_FLAVOR, microversions.SILENT_CELLS, doing=doing)
    if (content := find(cloud, "compute", f"/servers/{uuid}", doing, version=version)) is None:
        return None
    with well_formed(doing):
        return server_of(content["server"])


def named(cloud: Connection, name: str) -> list[Server]:
    """Return the instances with this name, of all projects if the user may list them.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    # Nova compares with a regular expression, whose syntax depends on the database.
    pattern = quote(re.sub(r"[^\w]", ".", name))
    return [found for found in listing(cloud, f"name={pattern}").servers if found.name == name]


def server_of(entry: Mapping[str, Any]) -> Server:
    """The instance of an answer of Nova."""
    flavor = entry.get("flavor") or {}
    specs = flavor.get("extra_specs") or {}
    status, task = str(entry.get("status") or ""), entry.get("OS-EXT-STS:task_state")
    return Server(
        id=str(entry["id"]),
        name=str(entry.get("name") or ""),
        project=str(entry.get("tenant_id") or ""),
        user=str(entry.get("user_id") or ""),
        host=str(entry.get("OS-EXT-SRV-ATTR:host") or ""),
        node=str(entry.get("OS-EXT-SRV-ATTR:hypervisor_hostname") or ""),
        status=status,
        flavor=str(flavor.get("original_name") or ""),
        devices=parse_alias(str(specs.get(ALIAS) or "")),
        classes=requested_classes(specs),
        demands=_demands(specs),
        traits=required_traits(specs),
        since=moment(entry.get("OS-SRV-USG:launched_at")),
        placed=bool(entry.get("OS-EXT-SRV-ATTR:host") or entry.get("hostId")),
        moving=bool(task) or status in _MOVING,
        task=str(task or ""),
        power=int(entry.get("OS-EXT-STS:power_state") or 0),
        locked=bool(entry.get("locked")),
        metadata={str(key): str(value) for key, value in (entry.get("metadata") or {}).items()},
        disks=_disks(entry, flavor),
    )


def requested_classes(extra_specs: Mapping[str, object]) -> dict[str, int]:
    """The amounts of the resource classes of devices that a flavor requests, in all of its groups."""
    matches = ((_DEVICE_CLASS.fullmatch(key), as_number(value)) for key, value in extra_specs.items())
    return sums((match[1], amount) for match, amount in matches if match and amount is not None and amount >= 0)


def _demands(extra_specs: Mapping[str, object]) -> tuple[str, ...]:
    """Return the parts of a flavor that need devices of a host: PCI aliases, resource classes, accelerator profiles.

    A custom resource class can be that of mediated devices (``mdev_class``); nothing in the API shows which ones are.
    """
    demands: dict[str, None] = {}
    for key, value in extra_specs.items():
        if key == ALIAS:
            demands.update(dict.fromkeys(alias_names(str(value))))
        elif match := _DEVICE_CLASS.fullmatch(key):
            demands[match[1]] = None
        elif key == "accel:device_profile":
            demands[str(value)] = None
    return tuple(demands)


def _disks(entry: Mapping[str, Any], flavor: Mapping[str, Any]) -> Disks:
    sizes = (("ephemeral", "GiB"), ("swap", "MiB"))
    lost = [f"{kind} disk of {flavor[kind]} {unit}" for kind, unit in sizes if flavor.get(kind)]
    return Disks(image=bool(entry.get("image")), root=int(flavor.get("disk") or 0), lost=tuple(lost))


def moment(text: object) -> datetime | None:
    """A time of the API as naive UTC; None if there is none, or if it is unreadable."""
    try:
        parsed = datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed


def clock(cloud: Connection) -> datetime | None:
    """Return the time of Nova's API; None if its web server sends none.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    answer = request(cloud, "compute", "GET", "/servers?limit=1", "read the time of Nova's API")
    try:
        return parsedate_to_datetime(answer.headers["Date"])
    except (LookupError, ValueError, TypeError):
        return None


def actions(cloud: Connection, uuid: str) -> list[Event]:
    """Return the actions of an instance, newest first; none if it does not exist.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read the actions of an instance"
    content = find(cloud, "compute", f"/servers/{uuid}/os-instance-actions", doing, version=microversions.ACTION_TIMES)
    if content is None:
        return []
    with well_formed(doing):
        return [
            Event(
                at=moment(entry.get("start_time")),
                server=uuid,
                what=str(entry["action"]),
                user=str(entry.get("user_id") or ""),
                failed=bool(entry.get("message")),
                request=str(entry.get("request_id") or ""),
            )
            for entry in content["instanceActions"]
        ]


def steps_of(cloud: Connection, uuid: str, request_id: str) -> list[ActionStep]:
    """Return the steps of an action in their order; none if there is no such action.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read the result of an action"
    version = newest(cloud, microversions.ACTION_TIMES, microversions.ACTION_ERRORS, doing=doing)
    path = f"/servers/{uuid}/os-instance-actions/{request_id}"
    if (content := find(cloud, "compute", path, doing, version=version)) is None:
        return []
    with well_formed(doing):
        events = content["instanceAction"].get("events") or []
        return [
            ActionStep(
                name=str(event.get("event") or ""),
                host=str(event.get("host") or ""),
                error=str(event.get("details") or _NO_DETAILS) if str(event.get("result")).lower() == "error" else "",
            )
            for event in sorted(events, key=lambda event: str(event.get("start_time")))
        ]


def why_failed(cloud: Connection, uuid: str, request_id: str) -> str:
    """Return Nova's reason for the failure of an action; empty if there is none.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    errors = [step.error for step in steps_of(cloud, uuid, request_id) if step.error]
    return next((error for error in errors if error != _NO_DETAILS), errors[0] if errors else "")


def migrations(cloud: Connection, query: str = "") -> Iterator[list[Migration]]:
    """Yield the pages of migrations, newest first; Nova keeps them indefinitely.

    :param query: parameters of the request, such as ``instance_uuid=UUID``.
    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "list migrations"
    for page in pages(
        cloud, "compute", f"/os-migrations?{query}", "migrations", doing, version=microversions.MIGRATION_UUIDS
    ):
        with well_formed(doing):
            yield [_migration(entry) for entry in page]


def _migration(entry: Mapping[str, Any]) -> Migration:
    return Migration(
        uuid=str(entry["uuid"]),
        server=str(entry["instance_uuid"]),
        kind=str(entry.get("migration_type") or "migration"),
        status=str(entry["status"]),
        source=str(entry.get("source_compute") or ""),
        target=str(entry.get("dest_compute") or ""),
        at=moment(entry.get("created_at")),
    )


def moves(cloud: Connection, uuid: str) -> Iterator[Event]:
    """Yield the migrations of an instance.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    for page in migrations(cloud, f"instance_uuid={uuid}"):
        for move in page:
            yield Event(
                at=move.at,
                server=uuid,
                what=f"{move.kind}: {move.status}",
                source=move.source,
                target=move.target,
                unfinished=move.unfinished,
            )


def instances_of(cloud: Connection, consumers: Collection[str]) -> dict[str, str]:
    """The instances of those consumers that are migrations, by the migration's uuid.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    missing = set(consumers)
    instances: dict[str, str] = {}
    for number, page in enumerate(migrations(cloud) if missing else ()):
        instances |= {move.uuid: move.server for move in page if move.uuid in missing}
        missing -= instances.keys()
        if not missing or number >= _PAGES:
            break
    return instances

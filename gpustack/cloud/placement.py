"""Placement: resource providers with their inventories, traits and allocations; free resources; writes of all of them.

With PCI in Placement, each device (or the physical function of virtual functions) is a resource provider
``<node>_<ADDRESS>`` below the compute node's provider (``nova/compute/pci_placement_translator.py``). A card on which
nova-compute creates mediated devices is ``<node>_pci_0000_84_00_0``, after libvirt's name of the card
(``_ensure_pgpu_providers`` in nova/virt/libvirt/driver.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpustack.base.errors import ApplyError, CloudError
from gpustack.cloud import Connection, session
from gpustack.cloud.microversions import CANDIDATES, CONSUMERS, PROJECT_USAGES, PROVIDERS, RESERVED, Microversion

_DEVICE = re.compile(r".+_([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\Z")
_MEDIATED = re.compile(r".+_pci_([0-9a-f]{4})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])\Z")
_ATTEMPTS = 4
ONE_TIME_USE = "HW_PCI_ONE_TIME_USE"
"""Nova's trait for devices that it reserves when an instance gets them (2025.2)."""
UNKNOWN = 400
"""The answer of a Placement that does not know a trait or a resource class."""
DISABLED = "COMPUTE_STATUS_DISABLED"
"""Nova's trait for hosts whose nova-compute is disabled (Train)."""
_MOVED = frozenset({"VCPU", "MEMORY_MB", "DISK_GB"})
"""The resource classes that every release of Nova requests for a move; ``PCPU`` may become another class."""
_MOST = 1000
Amounts = Mapping[str, int]
"""Amounts by resource class, such as ``MEMORY_MB``."""
DEVICE_CLASSES = ("CUSTOM_*", "FPGA", "PCI_DEVICE", "PGPU", "VGPU*")
"""The resource classes of devices, as patterns (``os_resource_classes``)."""
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A uuid; the pattern prevents a value that leads to another path of the API."""
ResourceClass = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{1,255}$")]
Owner = Annotated[str, StringConstraints(max_length=255)]


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Held(_Document):
    """An allocation of one resource provider."""

    resources: Annotated[dict[ResourceClass, Annotated[int, Field(ge=0, lt=1 << 31)]], Field(max_length=1000)]


class Consumer(_Document):
    """``GET /allocations/CONSUMER``, as clean-up writes it back; all but ``allocations`` is missing without any."""

    allocations: Annotated[dict[Id, Held], Field(max_length=1000)]
    consumer_generation: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    project_id: Owner | None = None
    user_id: Owner | None = None


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A resource provider.

    :ivar root: the uuid of the compute node's provider, which equals that of the compute node.
    :ivar address: the BDF address in its name, in lower case; empty unless it is that of a device.
    :ivar mediated: whether it is a card on which nova-compute creates mediated devices.
    :ivar held: the allocated amount, by consumer; empty if not read.
    :ivar unread: why the allocations could not be read; None if they were.
    """

    uuid: str
    name: str
    root: str
    address: str = ""
    mediated: bool = False
    held: Mapping[str, int] = field(default_factory=dict)
    unread: str | None = None

    @property
    def node(self) -> str:
        """The name of a device's compute node."""
        return self.name[: -len(self.address) - len("_pci_" if self.mediated else "_")]


@dataclass(frozen=True, kw_only=True)
class Known:
    """The devices from :func:`providers`, and the cloud for further requests."""

    devices: Sequence[Provider]
    cloud: Connection


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The inventory of a resource provider.

    :ivar classes: all fields of each resource class, as Placement has them.
    """

    provider: str
    generation: int
    classes: Mapping[str, Mapping[str, Any]]

    @property
    def unreserved(self) -> dict[str, int]:
        """The amounts that can be allocated in all, by resource class."""
        return {name: int(fields["total"]) - int(fields["reserved"]) for name, fields in self.classes.items()}

    @property
    def totals(self) -> dict[str, int]:
        """All amounts, by resource class."""
        return {name: int(fields["total"]) for name, fields in self.classes.items()}

    @property
    def reserved(self) -> dict[str, int]:
        """The reserved amounts, by resource class."""
        return {name: int(fields["reserved"]) for name, fields in self.classes.items()}

    def with_reserved(self, amounts: Amounts) -> Self:
        """The same inventory with these amounts reserved."""
        return replace(
            self, classes={name: {**fields, "reserved": amounts[name]} for name, fields in self.classes.items()}
        )


@dataclass(frozen=True, kw_only=True)
class AllocationCandidates:
    """Where resources are free.

    :ivar summaries: by provider, Placement's summary of all providers in the trees of the hosts that fit.
    :ivar requests: the number of allocations that would be possible.
    """

    summaries: dict[str, Mapping[str, Any]]
    requests: int = 0


@dataclass(frozen=True, kw_only=True)
class Room:
    """The hosts on which an instance fits.

    :ivar free: free amounts by provider; empty if the instance fits nowhere.
    :ivar whole: whether all providers are included, and not only the first thousand.
    """

    free: Mapping[str, Amounts] = field(default_factory=dict)
    whole: bool = True


def listed(cloud: Connection, query: str = "", *, version: Microversion = PROVIDERS) -> list[Provider]:
    """List resource providers: one request.

    :param query: parameters of the request, such as ``required=TRAIT``.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "list the resource providers"
    path = f"/resource_providers?{query}" if query else "/resource_providers"
    content = session.get(cloud, "placement", path, doing, version=version)
    with session.well_formed(doing):
        return [_provider(entry) for entry in content["resource_providers"]]


def _provider(entry: Mapping[str, Any]) -> Provider:
    uuid, root, match = entry["uuid"], entry["root_provider_uuid"], _DEVICE.match(entry["name"])
    address = match[1].lower() if match and root != uuid else ""
    if match is None and root != uuid and (mediated := _MEDIATED.match(entry["name"])):
        address = "{}:{}:{}.{}".format(*mediated.groups())
    return Provider(
        uuid=str(uuid), name=entry["name"], root=str(root), address=address, mediated=bool(address) and not match
    )


def bearers(cloud: Connection, trait: str) -> frozenset[str]:
    """Return the uuids of the providers with a trait; none if Placement does not know the trait.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    with session.tolerating(UNKNOWN):
        return frozenset(provider.uuid for provider in listed(cloud, f"required={trait}"))
    return frozenset()


def providers(cloud: Connection, roots: Iterable[str] | None = None) -> Iterator[Provider]:
    """Yield the PCI devices that Placement has, with their allocations; cards with mediated devices have no rows.

    One request lists them; then the allocations of each are requested, several at a time: Placement has no request for
    the allocations of many providers. A device that was removed meanwhile is left out. If Placement fails for one
    (5xx), ``unread`` has the reason.

    :param roots: only below these compute nodes; None for all.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    queries = [""] if roots is None else [f"in_tree={uuid}" for uuid in roots]
    known = [provider for answer in session.each(lambda query: listed(cloud, query), queries) for provider in answer]
    devices = [provider for provider in known if provider.address and not provider.mediated]
    yield from filter(None, session.each(lambda device: _with_allocations(cloud, device), devices))


def _with_allocations(cloud: Connection, device: Provider) -> Provider | None:
    try:
        held = consumers_of(cloud, device.uuid)
    except session.Refused as error:
        if error.status < 500:
            raise
        return replace(device, unread=error.what)
    return None if held is None else replace(device, held=held)


def consumers_of(cloud: Connection, provider: str) -> Mapping[str, int] | None:
    """Return the allocated amount of a provider, by consumer; None if the provider is gone.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read the allocations of a device"
    content = session.find(cloud, "placement", f"/resource_providers/{provider}/allocations", doing, version=PROVIDERS)
    if content is None:
        return None
    with session.well_formed(doing):
        return {
            str(consumer): sum(map(int, allocation["resources"].values()))
            for consumer, allocation in content["allocations"].items()
        }


def allocations_of(cloud: Connection, consumer: str) -> Mapping[str, Any]:
    """Return the allocations, generation, project and user of a consumer; only an empty ``allocations`` without any.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    return _consumer(session.get(cloud, "placement", *_of_consumer(consumer), version=CONSUMERS))


def _of_consumer(consumer: str) -> tuple[str, str]:
    return f"/allocations/{consumer}", f"read the allocations of {consumer}"


def _consumer(content: object) -> Mapping[str, Any]:
    with session.well_formed("read the allocations of a consumer"):
        return Consumer.model_validate(content).model_dump(exclude_unset=True)


def put(cloud: Connection, consumer: str, like: Mapping[str, Any], allocations: Mapping[str, Any]) -> bool:
    """Write all allocations of a consumer atomically, if it has not changed since it was read.

    :param like: the answer of :func:`allocations_of`; Placement compares its generation.
    :return: False if Placement refuses with 409: the consumer changed meanwhile, or the device is allocated or
        reserved.
    :raises CloudError: if Placement cannot be reached, or refuses for another reason.
    """
    written = {uuid: {"resources": dict(allocation["resources"])} for uuid, allocation in allocations.items()}
    body = {
        "allocations": written,
        "consumer_generation": like.get("consumer_generation"),
        "project_id": like["project_id"],
        "user_id": like["user_id"],
    }
    return _put(cloud, f"/allocations/{consumer}", f"write the allocations of {consumer}", body, CONSUMERS)


def stranger(cloud: Connection, consumer: str, provider: Provider) -> tuple[tuple[str, ...], datetime | None]:
    """Describe a consumer that no cell has, and return when its allocations were last written (naive UTC)."""
    path, doing = _of_consumer(consumer)
    answer = session.request(cloud, "placement", "GET", path, doing, version=CONSUMERS)
    known = _consumer(session.content_of(answer, doing))
    try:
        moment = parsedate_to_datetime(answer.headers["Last-Modified"])
        written = moment.replace(tzinfo=None)  # HTTP's times are UTC
    except (KeyError, TypeError, ValueError):
        written = None
    others = len(known["allocations"].keys() - {provider.uuid})
    text = (
        f"consumer {consumer} is of project {known.get('project_id')}, user {known.get('user_id')}",
        f"its allocations, {others} of other providers, were last written {written or 'at an unknown time'} UTC",
    )
    return text, written


def candidates(cloud: Connection, query: str, doing: str = "read the free resources") -> AllocationCandidates:
    """Return the hosts on which resources are free: one request.

    :param query: parameters of the request: ``resources=MEMORY_MB:1``.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    content = session.get(cloud, "placement", f"/allocation_candidates?{query}", doing, version=CANDIDATES)
    with session.well_formed(doing):
        return AllocationCandidates(
            summaries=dict(content["provider_summaries"]), requests=len(content.get("allocation_requests") or ())
        )


def summaries(cloud: Connection, resource_class: str, nodes: Iterable[str], doing: str) -> dict[str, Mapping[str, Any]]:
    """Return the summaries of all providers in the trees of compute nodes that have a free unit of a class.

    One request. If the answer lacks nodes, Placement may limit the candidates: then its list of providers, which has no
    limit, and one request for each node of the list.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    query = f"resources={resource_class}:1"
    found = candidates(cloud, query, doing).summaries
    if missing := [node for node in nodes if node not in found]:
        having = {provider.root for provider in listed(cloud, query)}
        ask = [node for node in missing if node in having]
        for answer in session.each(lambda node: candidates(cloud, f"{query}&in_tree={node}", doing).summaries, ask):
            found |= answer
    return found


def device_classes(cloud: Connection) -> list[str]:
    """Return the resource classes that devices may have: one request.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "list the resource classes"
    content = session.get(cloud, "placement", "/resource_classes", doing, version=PROVIDERS)
    with session.well_formed(doing):
        names = [str(entry["name"]) for entry in content["resource_classes"]]
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in DEVICE_CLASSES)]


def needs_of(cloud: Connection, consumer: str) -> Amounts:
    """Return what an instance has allocated of the resource classes that Nova requests again for a move.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    amounts: Counter[str] = Counter()
    for allocation in allocations_of(cloud, consumer)["allocations"].values():
        amounts.update({name: amount for name, amount in allocation["resources"].items() if name in _MOVED})
    return dict(amounts)


def room_of(cloud: Connection, needs: Amounts) -> Room:
    """Return the hosts with room whose nova-compute is not disabled.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    resources = ",".join(f"{name}:{amount}" for name, amount in sorted(needs.items()))
    found = candidates(cloud, urlencode({"resources": resources, "required": f"!{DISABLED}", "limit": _MOST}))
    with session.well_formed("read the free resources"):
        free = {
            provider: {name: int(of["capacity"]) - int(of["used"]) for name, of in summary["resources"].items()}
            for provider, summary in found.summaries.items()
        }
    return Room(free=free, whole=found.requests < _MOST)


def inventory(cloud: Connection, provider: str) -> Inventory | None:
    """Return the inventory of a provider; None if the provider is gone.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read an inventory"
    content = session.find(cloud, "placement", f"/resource_providers/{provider}/inventories", doing, version=RESERVED)
    if content is None:
        return None
    with session.well_formed(doing):
        classes = {str(name): dict(fields) for name, fields in content["inventories"].items()}
        known = Inventory(provider=provider, generation=int(content["resource_provider_generation"]), classes=classes)
        _ = known.unreserved  # both numbers are there
        return known


def write_inventory(cloud: Connection, before: Inventory, after: Inventory) -> None:
    """Replace an inventory, unless it changed since it was read.

    nova-compute never changes ``reserved`` of a device, and a reserved GPU keeps its instance. It increases the
    generation also without changing the inventory, so a refused write is repeated if the inventory is as it was shown.

    :raises ApplyError: if the inventory changed.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    generation = before.generation
    path = f"/resource_providers/{before.provider}/inventories"
    for _attempt in range(_ATTEMPTS):
        body = {"resource_provider_generation": generation, "inventories": after.classes}
        if _put(cloud, path, "write the inventory of the GPU", body, RESERVED):
            return
        current = inventory(cloud, before.provider)
        if current is None or current.classes != before.classes:
            break
        generation = current.generation
    raise ApplyError("the inventory of the GPU changed meanwhile; nothing was written", remedy="run the command again")


def may_reserve(cloud: Connection) -> bool:
    """Whether the user may write inventories.

    :raises CloudError: if Placement cannot be reached, or refuses for another reason.
    """
    path = f"/resource_providers/{session.NOBODY}/inventories"
    body = {"resource_provider_generation": 0, "inventories": {}}
    return session.may(cloud, "placement", path, "write an inventory", body, RESERVED)


def usage(cloud: Connection, provider: str) -> Mapping[str, int] | None:
    """Return the allocated amounts of a provider, by resource class; None if the provider is gone.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read the use of a provider"
    content = session.find(cloud, "placement", f"/resource_providers/{provider}/usages", doing, version=PROVIDERS)
    return None if content is None else _usages(content, doing)


def project_usage(cloud: Connection, project: str) -> Mapping[str, int]:
    """Return the amounts that a project uses, by resource class.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read the use of a project"
    content = session.get(cloud, "placement", f"/usages?project_id={project}", doing, version=PROJECT_USAGES)
    return _usages(content, doing)


def _usages(content: Mapping[str, Any], doing: str) -> Mapping[str, int]:
    with session.well_formed(doing):
        return {str(name): int(number) for name, number in content["usages"].items()}


def traits(cloud: Connection, provider: str) -> tuple[frozenset[str], int] | None:
    """Return the traits of a provider, and its generation; None if the provider is gone.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read the traits of a provider"
    content = session.find(cloud, "placement", f"/resource_providers/{provider}/traits", doing, version=PROVIDERS)
    if content is None:
        return None
    with session.well_formed(doing):
        return frozenset(map(str, content["traits"])), int(content.get("resource_provider_generation") or 0)


def set_trait(cloud: Connection, provider: str, trait: str, *, wanted: bool) -> None:
    """Add a trait to a provider, or remove it; nova-compute, which changes others, keeps it.

    Placement gets the trait if it does not know it, and keeps it.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    if wanted:
        session.request(cloud, "placement", "PUT", f"/traits/{trait}", f"create the trait {trait}", version=PROVIDERS)
    doing = "change the traits of a host"
    for _attempt in range(_ATTEMPTS):
        if (known := traits(cloud, provider)) is None:
            raise CloudError("the resource provider of the host is gone", remedy="run the command again")
        present, generation = known
        after = sorted(present | {trait} if wanted else present - {trait})
        body = {"resource_provider_generation": generation, "traits": after}
        if _put(cloud, f"/resource_providers/{provider}/traits", doing, body, PROVIDERS):
            return
    raise session.Refused(f"can't {doing}: HTTP {session.CONFLICT}, it changes all the time", status=session.CONFLICT)


def _put(cloud: Connection, path: str, doing: str, body: object, version: Microversion) -> bool:
    """Write; False if Placement refuses because the object changed meanwhile, or has no room."""
    with session.tolerating(session.CONFLICT):
        session.request(cloud, "placement", "PUT", path, doing, version=version, body=body)
        return True
    return False

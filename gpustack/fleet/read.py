"""Ask the sources about the GPUs of a cloud. A source that does not answer becomes a gap; the others still count."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpustack.base.by_key import sums
from gpustack.base.errors import CloudError
from gpustack.base.hostnames import key
from gpustack.cloud import Connection, compute, identity, servers
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Provider, consumers_of
from gpustack.cloud.servers import Server
from gpustack.cloud.session import FORBIDDEN, MISSING, Progress, each, silent, tolerating
from gpustack.fleet import placement
from gpustack.fleet.cards import Models
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.model import Gap, Source
from gpustack.fleet.placement import Consumer, Device
from gpustack.hosts.facts.model import Host
from gpustack.spec.model import Spec

if TYPE_CHECKING:
    from gpustack.novadb.sources import Sources

Databases = Callable[[], "Sources"]
"""Finds the cell databases."""
OTHER_CLOUD = "the databases have none of the cloud's compute nodes: --config-file is of another cloud or region"
_WITHOUT_SERVICES = "free GPUs may be on hosts whose nova-compute is down"
_WITHOUT_NOVA = "the holders of GPUs are unknown, and hosts that report no devices to Placement are missing"


class Detail(enum.IntEnum):
    """How much is asked of the APIs."""

    STATES = 0
    """Which GPUs are free: two requests to Placement, one for the services, and one for each thousand instances or
    compute nodes.

    The instances show the GPUs in use of hosts that report none to Placement, also if other hosts report theirs. The
    services, and those without a compute node, show the hosts on which no new instance starts.
    """
    PROJECTS = 1
    """Also the names of projects: one request."""
    HOLDERS = 2
    """Also who holds each GPU: one more request for each instance with GPUs."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """Facts from files, and the scope.

    :ivar hosts: the hosts of a snapshot.
    :ivar models: the models of a spec.
    :ivar only: the names of the hosts whose holders are asked for; empty for all.
    """

    hosts: tuple[Host, ...] = ()
    models: Models = field(default_factory=Models)
    spec: Spec | None = None
    only: frozenset[str] = frozenset()


def read(
    cloud: Callable[[], Connection],
    detail: Detail,
    given: Given,
    databases: Databases | None = None,
    progress: Progress = silent,
) -> Answers:
    """Ask Nova or its databases, Placement and Keystone.

    :param cloud: connects to the cloud.
    :param databases: finds the databases; None if they are not read. Without the cloud, they are enough for a partial
        answer.
    :raises CloudError: if neither Nova nor Placement answers, and there are no databases.
    :raises DatabaseError: if no cell can be read.
    """
    if databases is not None:
        return _from_databases(cloud, databases(), given, progress)
    connection = cloud()
    gaps: list[Gap] = []
    devices, refusal = _devices(connection, gaps)
    listed = _listing(connection, gaps, refusal)
    services, nodes = _services(connection, gaps) if listed else (None, frozenset[str]())
    answers = Answers(
        servers=with_vgpus(listed.servers, devices) if listed else None,
        everything=listed is not None and listed.everything and not listed.gaps,
        services=services,
        nodes=nodes,
        devices=devices,
        hosts=given.hosts,
        models=given.models,
        spec=given.spec,
        gaps=tuple(gaps),
    )
    match detail:
        case Detail.STATES:
            return answers
        case Detail.PROJECTS:
            return _named(connection, answers, users=False)
        case Detail.HOLDERS:
            return _named(connection, _with_holders(connection, answers, given.only, progress))


def _from_databases(cloud: Callable[[], Connection], sources: Sources, given: Given, progress: Progress) -> Answers:
    """Ask the databases for rows and instances, and the cloud for allocations and names."""
    from gpustack.fleet import databases

    sources = databases.with_facts(sources, given.hosts)
    answers, cells = databases.cells(sources)
    answers = replace(answers, hosts=given.hosts, models=given.models, spec=given.spec)
    try:
        connection = cloud()
        answers = replace(answers, devices=placement.devices(connection))
        found: list[Gap] = []
        services, nodes = _services(connection, found)
        answers = replace(answers, services=services, gaps=(*answers.gaps, *found))
    except CloudError as error:
        gap = Gap(source=Source.PLACEMENT, reason=f"{error.what}; reserved GPUs are listed as free")
        return replace(answers, gaps=(*answers.gaps, gap))
    if answers.is_elsewhere(nodes):
        of_cloud = read(cloud, Detail.HOLDERS, given, progress=progress)
        return replace(of_cloud, gaps=(*of_cloud.gaps, Gap(source=Source.DATABASE, reason=OTHER_CLOUD)))
    answers = _with_holders(connection, answers, given.only, progress)
    if answers.devices and answers.consumers is not None:
        index = Index(answers)
        asked = _in_scope(answers, given.only)
        providers = [_provider(index, device) for device in asked if not device.mediated]
        verdicts, gaps = databases.allocation_verdicts(sources, cells, providers, connection)
        answers = replace(answers, verdicts=(*answers.verdicts, *verdicts), gaps=(*answers.gaps, *gaps))
    return _named(connection, answers)


def _provider(index: Index, device: Device) -> Provider:
    """A device as clean-up reads it."""
    held = {holder.consumer: holder.amount for holder in index.holders(device)}
    return Provider(uuid=device.uuid, name=device.name, root=device.root, address=device.address, held=held)


def _devices(cloud: Connection, gaps: list[Gap]) -> tuple[tuple[Device, ...] | None, CloudError | None]:
    try:
        return placement.devices(cloud), None
    except CloudError as error:
        gaps.append(Gap(source=Source.PLACEMENT, reason=f"{error.what}; GPUs are counted by host only"))
        return None, error


def _listing(cloud: Connection, gaps: list[Gap], refusal: CloudError | None) -> servers.Listing | None:
    try:
        listed = servers.listing(cloud)
    except CloudError as error:
        if refusal is not None:
            raise
        gaps.append(Gap(source=Source.NOVA, reason=f"{error.what}; {_WITHOUT_NOVA}"))
        return None
    gaps += (Gap(source=Source.NOVA, reason=reason) for reason in listed.gaps)
    return listed


def with_vgpus(listed: Iterable[Server], devices: Iterable[Device] | None) -> tuple[Server, ...]:
    """Count the vGPUs that instances request among their devices, by resource class.

    Only Placement shows which custom classes are those of vGPUs.
    """
    classes = {device.resource_class for device in devices or () if device.mediated}
    return tuple(
        replace(server, devices={**server.devices, **{name: server.classes[name] for name in requested}})
        if (requested := classes & server.classes.keys())
        else server
        for server in listed
    )


def _services(cloud: Connection, gaps: list[Gap]) -> tuple[tuple[Service, ...] | None, frozenset[str]]:
    """The services, None if Nova does not list them, and the uuids of its compute nodes."""
    nodes: dict[str, str] | None = None
    try:
        listed = compute.services(cloud)
        with tolerating(FORBIDDEN, MISSING):
            nodes = {node.uuid: key(node.host) for node in compute.hypervisors(cloud)} if listed else None
    except CloudError as error:
        gaps.append(Gap(source=Source.NOVA, reason=f"{error.what}; {_WITHOUT_SERVICES}"))
        return None, frozenset()
    hosts = None if nodes is None else set(nodes.values())
    known = tuple(replace(s, mapped=hosts is None or key(s.host) in hosts) for s in listed if s.answers)
    if missing := len(listed) - len(known):
        reason = f"a cell does not answer: the states of {missing} nova-compute services are unknown"
        gaps.append(Gap(source=Source.NOVA, reason=reason))
    return known, frozenset(nodes or ())


def _in_scope(answers: Answers, only: frozenset[str]) -> list[Device]:
    """The devices of some hosts, by the names of their nodes, hosts or facts; all without names."""
    names, index = {key(name) for name in only}, Index(answers)

    def called(node: str) -> set[str]:
        facts = index.facts(node)
        return {key(node), key(index.host_of(node)), key(facts.hostname if facts else node)}

    return [device for device in answers.devices or () if not names or called(device.node) & names]


def _with_holders(cloud: Connection, answers: Answers, only: frozenset[str], progress: Progress) -> Answers:
    """Ask Placement for the allocations of the instances, and who holds the remaining devices."""
    if answers.devices is None or answers.servers is None:
        return answers
    asked = _in_scope(answers, only)
    known = {device.uuid: device for device in answers.devices}
    nodes = {key(device.node) for device in asked}
    holding = [s.id for s in answers.servers if s.devices and (key(s.place) in nodes or s.moving)]
    try:
        consumers = {c.uuid: c for c in placement.consumers(cloud, holding, known.keys(), progress)}
        held = sums(pair for consumer in consumers.values() for pair in consumer.devices.items())
        open_devices = [device.uuid for device in asked if device.used > held.get(device.uuid, 0)]
        holders = each(lambda device: frozenset(consumers_of(cloud, device) or ()), open_devices)
        strangers = dict(zip(open_devices, holders, strict=True))
        # Instances on other nodes, or whose flavors request no device.
        others = _all(strangers.values()) & {server.id for server in answers.servers} - consumers.keys()
        consumers |= {c.uuid: c for c in placement.consumers(cloud, sorted(others), known.keys())}
    except CloudError as error:
        gap = Gap(source=Source.PLACEMENT, reason=f"{error.what}; the holders of GPUs are unknown")
        return replace(answers, gaps=(*answers.gaps, gap))
    remaining = {device: who - consumers.keys() for device, who in strangers.items()}
    answers = replace(answers, consumers=consumers, strangers={device: who for device, who in remaining.items() if who})
    return _confirmed(cloud, _with_migrations(cloud, answers))


def _confirmed(cloud: Connection, answers: Answers) -> Answers:
    """Read the instances again whose allocations do not fit: they may have changed since they were listed."""
    if answers.rows is not None or answers.servers is None or answers.consumers is None:
        return answers
    listed, consumers = {server.id: server for server in answers.servers}, dict(answers.consumers)
    nodes = {device.uuid: key(device.node) for device in answers.devices or ()}
    doubtful = {uuid: None for uuid, consumer in consumers.items() if _differs(listed[uuid], consumer, nodes)}
    unknown = sorted(_all(answers.strangers.values()) - answers.migrations.keys() - listed.keys())
    if not (doubtful or unknown):
        return answers
    try:
        current = dict(
            zip((*doubtful, *unknown), each(lambda u: servers.server(cloud, u), (*doubtful, *unknown)), strict=True)
        )
        known = {uuid: server for uuid, server in current.items() if server is not None}
        present = {server.id: server for server in with_vgpus(known.values(), answers.devices)}
        consumers |= {c.uuid: c for c in placement.consumers(cloud, present, nodes)}
    except CloudError as error:
        gap = Gap(source=Source.NOVA, reason=f"{error.what}; the holders of some GPUs are unknown")
        certain = {uuid: consumer for uuid, consumer in consumers.items() if uuid not in doubtful}
        return replace(answers, everything=False, consumers=certain, gaps=(*answers.gaps, gap))
    gone = current.keys() - present.keys() - set(unknown)
    remaining = {device: who - present.keys() for device, who in answers.strangers.items()}
    return replace(
        answers,
        servers=tuple(server for uuid, server in {**listed, **present}.items() if uuid not in gone),
        consumers={uuid: consumer for uuid, consumer in consumers.items() if uuid not in gone},
        strangers={device: who for device, who in remaining.items() if who},
    )


def _differs(server: Server, consumer: Consumer, nodes: Mapping[str, str]) -> bool:
    """Whether an instance that does not move has other allocations than its flavor requests."""
    here = sum(amount for device, amount in consumer.devices.items() if nodes[device] == key(server.place))
    return not server.moving and (here, sum(consumer.devices.values())) != (server.count, server.count)


def _all(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _with_migrations(cloud: Connection, answers: Answers) -> Answers:
    try:
        return replace(answers, migrations=servers.instances_of(cloud, _all(answers.strangers.values())))
    except CloudError as error:
        gap = Gap(source=Source.NOVA, reason=f"{error.what}; migrations that hold GPUs are unknown")
        return replace(answers, everything=False, gaps=(*answers.gaps, gap))


def _named(cloud: Connection, answers: Answers, *, users: bool = True) -> Answers:
    """Ask Keystone for names. A cloud without them is complete: the ids are exact."""
    holding = [server for server in answers.servers or () if server.devices]
    consumers = (answers.consumers or {}).values()
    projects = identity.names(cloud, "projects", {*(s.project for s in holding), *(c.project for c in consumers)})
    answers = replace(answers, projects=projects.names, deleted=projects.deleted)
    if not users:
        return answers
    ids = {*(s.user for s in holding), *(c.user for c in consumers)}
    return replace(answers, users=identity.names(cloud, "users", ids).names)

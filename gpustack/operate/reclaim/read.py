"""Read the candidates: instances with GPUs that may be idle, with everything that decides about them.

The listing shows which instances to look at; only these take requests of their own. If Placement does not answer, the
instances are blocked.

The hosts that an instance can return to after shelving. Pure.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpustack.base.errors import CloudError
from gpustack.base.text import counted
from gpustack.cloud import Connection, compute, identity, servers
from gpustack.cloud.marks import hosts_named, marks
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.servers import Server
from gpustack.cloud.session import Progress, each, silent
from gpustack.fleet import placement
from gpustack.fleet.disagreements import of_server
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.placement import Device
from gpustack.fleet.read import with_vgpus
from gpustack.nova_options.aggregates import Aggregate
from gpustack.operate.reclaim.idle import AHEAD, HELD, STOPS
from gpustack.operate.reclaim.model import Candidate, Rules
from gpustack.operate.reclaim.notice import EXPIRES, KEYS


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The instances that may be idle.

    :ivar projects: names of their projects by id.
    :ivar users: names of their users by id.
    :ivar gaps: what could not be read.
    :ivar held: instances that hold GPUs in a state without a rule.
    """

    entries: tuple[Candidate, ...] = ()
    held: tuple[Server, ...] = ()
    projects: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Hosts:
    """The hosts of Nova.

    :ivar up: those whose nova-compute reports.
    :ivar known: those with GPUs, by the aliases of the GPUs, as far as instances have asked for them.
    """

    names: frozenset[str]
    up: frozenset[str]
    aggregates: Sequence[Aggregate]
    known: dict[frozenset[str], list[str]] = field(default_factory=dict)

    def having(self, rules: Rules, server: Server) -> list[str]:
        """The hosts with the GPUs of an instance, sorted; by aliases, because many instances have the same."""
        aliases = rules.aliases.intersection(server.devices)
        if aliases not in self.known:
            self.known[aliases] = sorted(host for host in self.names if rules.has_gpus(host, aliases))
        return self.known[aliases]


class Reader:
    """Reads candidates, all of them or one again.

    :param api: the interface of :mod:`gpustack.prepare.drain`, for services.
    """

    def __init__(self, cloud: Connection, api: ServiceCloud, rules: Rules) -> None:
        self._cloud = cloud
        self._api = api
        self._rules = rules
        self._devices: tuple[Device, ...] | None = None
        self._unread = ""

    def candidates(self, progress: Progress = silent) -> Candidates:
        """Read all candidates.

        :raises CloudError: if Nova cannot be reached or refuses, or if its clock differs from that of this machine.
        """
        check_clock(self._cloud, datetime.now(UTC))
        listed = servers.listing(self._cloud)
        try:
            self._devices = placement.devices(self._cloud)
        except CloudError as error:
            self._unread = error.what
        known = with_vgpus(listed.servers, self._devices)
        idle = [server for server in known if may_be_idle(server, self._rules)]
        held = tuple(server for server in known if has_no_rule(server, self._rules))
        shown = [*idle, *held]
        hosts = self._hosts()
        entries = tuple(each(lambda server: self._candidate(server, hosts), idle, progress))
        return Candidates(
            entries=entries,
            held=held,
            projects=identity.names(self._cloud, "projects", {server.project for server in shown}).names,
            users=identity.names(self._cloud, "users", {server.user for server in shown}).names,
            gaps=listed.gaps,
        )

    def again(self, server_id: str) -> Candidate | None:
        """Read one instance as it is now; None if it does not exist.

        :raises CloudError: if Nova cannot be reached or refuses.
        """
        server = servers.server(self._cloud, server_id)
        known = with_vgpus([server], self._devices) if server else ()
        return self._candidate(known[0], self._hosts()) if known else None

    def _hosts(self) -> _Hosts:
        services = self._api.services()
        return _Hosts(
            names=frozenset(service.host for service in services),
            up=frozenset(service.host for service in services if service.up),
            aggregates=compute.aggregates(self._cloud),
        )

    def _candidate(self, server: Server, hosts: _Hosts) -> Candidate:
        moves = (event.what for event in servers.moves(self._cloud, server.id) if event.unfinished)
        unknown = self._unread
        try:
            uuids = frozenset(device.uuid for device in self._devices or ())
            known = [] if unknown else [*placement.consumers(self._cloud, [server.id], uuids)]
        except CloudError as error:
            known, unknown = [], error.what
        answers = Answers(
            servers=(server,), devices=self._devices, consumers={consumer.uuid: consumer for consumer in known}
        )
        surplus = [] if self._devices is None else [found.finding for found in of_server(Index(answers), server)]
        actions = tuple(servers.actions(self._cloud, server.id))
        return Candidate(
            server=server,
            actions=actions,
            marks=marks(replace(server, actions=actions), self._api.user()) if hosts_named(server) else (),
            migration=next(moves, ""),
            surplus=tuple(surplus),
            unknown=unknown,
            no_return=no_return(server, hosts.having(self._rules, server), hosts.aggregates),
            host_up=server.host in hosts.up,
        )


def may_be_idle(server: Server, rules: Rules) -> bool:
    """Whether the listing shows a reason to look at an instance."""
    if not server.placed or not rules.aliases & server.devices.keys():
        return False
    stopped = "SHUTOFF" if server.status == "SHELVED" else server.status
    expires = server.id in rules.expires or (rules.metadata and EXPIRES in server.metadata)
    return expires or (stopped in STOPS and stopped in rules.idle_after) or bool(set(KEYS) & server.metadata.keys())


def has_no_rule(server: Server, rules: Rules) -> bool:
    """Whether an instance holds GPUs without using them, and no rule looks at it."""
    holds = server.placed and bool(rules.aliases & server.devices.keys())
    return holds and server.status in HELD and not server.task and not may_be_idle(server, rules)


def check_clock(cloud: Connection, now: datetime) -> None:
    """Compare the clock of this machine with that of Nova's API.

    :param now: the current time with its zone.
    :raises CloudError: if they differ by more than the permitted difference, or if Nova cannot be reached.
    """
    there = servers.clock(cloud)
    if there is not None and abs(there - now) > AHEAD:
        raise CloudError(
            f"the clock of Nova's API is {there:%FT%TZ}, and the clock of this machine is {now:%FT%TZ}",
            remedy="synchronize the clocks (chrony), then run the command again: a wrong time would end notices early",
        )


_LISTED = 5


def no_return(server: Server, hosts: Iterable[str], aggregates: Sequence[Aggregate]) -> str:
    """Why every host with its GPUs would refuse an instance; empty if one may accept it.

    :param hosts: the hosts of Nova with its GPUs. Those that the spec knows by another name are not compared.
    """
    problems: dict[str, str] = {}
    for host in itertools.chain((server.host,), hosts):
        if not (problem := _refusal(server, [aggregate for aggregate in aggregates if aggregate.has(host)])):
            return ""
        problems[host] = problem
    more = len(problems) - _LISTED
    texts = [f"{host} {problem}" for host, problem in sorted(problems.items())][:_LISTED]
    return "; ".join([*texts, *([f"{counted(more, 'more host')} too"] if more > 0 else [])])


def _refusal(server: Server, aggregates: Sequence[Aggregate]) -> str:
    """Why a host in these aggregates would refuse an instance; empty if it may accept it."""
    if traits := frozenset().union(*(aggregate.traits for aggregate in aggregates)) - server.traits:
        return f"requires {', '.join(sorted(traits))}, which its flavor lacked at boot"
    projects = frozenset().union(*(aggregate.projects for aggregate in aggregates))
    return "accepts other projects only" if projects and server.project not in projects else ""

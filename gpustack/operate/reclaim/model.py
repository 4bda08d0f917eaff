"""The rules, an instance with everything that decides about it, the decision, and its columns. Plain data."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from gpustack.base.by_key import by_key
from gpustack.base.columns import Column, codes
from gpustack.base.errors import SpecError
from gpustack.base.findings import Finding
from gpustack.cloud.identity import distinct
from gpustack.cloud.marks import Mark
from gpustack.cloud.servers import Event, Server
from gpustack.spec.model import Spec
from gpustack.spec.patterns import HostPattern, Patterns
from gpustack.spec.reclaim import duration, moment


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The section ``reclaim`` of the spec, with ids and times, and the operator's choices for one run.

    :ivar aliases: the aliases of the spec's models; devices of others do not count.
    :ivar projects: the ids of the projects whose instances may be shelved.
    :ivar idle_after: how long an instance may hold GPUs, by status.
    :ivar metadata: whether the metadata of an instance can set when it expires.
    :ivar expires: when instances expire, by id, naive UTC.
    :ivar running: whether expired instances are shelved whose memory is in use.
    :ivar hosts: the hosts that have GPUs of an alias, by alias.
    :ivar accept_loss: whether ephemeral and swap disks may be lost.
    :ivar space: the space for snapshots in GiB; None if nobody knows it.
    """

    aliases: frozenset[str]
    projects: frozenset[str] = frozenset()
    idle_after: Mapping[str, timedelta] = field(default_factory=dict)
    grace: timedelta = timedelta(days=3)
    metadata: bool = False
    expires: Mapping[str, datetime] = field(default_factory=dict)
    running: bool = False
    hosts: Mapping[str, Patterns] = field(default_factory=dict)
    accept_loss: bool = False
    space: int | None = None

    def has_gpus(self, host: str, aliases: Iterable[str]) -> bool:
        """Whether the spec gives a host GPUs of these aliases; aliases of others do not count."""
        known = self.aliases.intersection(aliases)
        return all(alias in self.hosts and self.hosts[alias].matching(host) for alias in known)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An instance with GPUs that may be idle.

    :ivar actions: its actions, newest first.
    :ivar marks: the marks of gpustack's drains, compared with its actions.
    :ivar migration: an unfinished migration with its status; empty if there is none.
    :ivar surplus: the disagreements between its request and its allocations in Placement.
    :ivar unknown: why its allocations in Placement are unknown; empty if they are known.
    :ivar no_return: why no host would accept it again after shelving; empty if one may.
    :ivar host_up: whether the nova-compute of its host reports.
    """

    server: Server
    actions: tuple[Event, ...] = ()
    marks: tuple[Mark, ...] = ()
    migration: str = ""
    surplus: tuple[Finding, ...] = ()
    unknown: str = ""
    no_return: str = ""
    host_up: bool = True

    @property
    def label(self) -> str:
        """The place of findings: host, name and id."""
        return f"{self.server.host} {self.server.name} ({self.server.id})".strip()


class Step(enum.StrEnum):
    """What to do with an instance."""

    NOTIFY = "notify"
    WAIT = "wait"
    """The notice is written, and its time is not over."""
    SHELVE = "shelve"
    WITHDRAW = "withdraw"
    """It has a notice and is no longer idle: remove the notice."""
    NOTHING = "nothing"
    """A finding has the reason."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do with one instance, and why.

    :ivar gpus: the number of GPUs that it holds.
    :ivar reason: why it counts as idle; empty for others.
    :ivar since: since when it is idle, naive UTC.
    :ivar due: when it may be shelved, naive UTC; None without a notice.
    :ivar newest: the id of the newest request for it; empty if there is none.
    :ivar snapshot: the most GiB that its snapshot takes; 0 without a snapshot, None if unknown.
    :ivar held: the status and the age of an instance that no rule covers; empty for others.
    """

    server: Server
    gpus: int
    step: Step
    held: str = ""
    reason: str = ""
    since: datetime | None = None
    due: datetime | None = None
    newest: str = ""
    snapshot: int | None = 0
    findings: tuple[Finding, ...] = ()


def rules_of(spec: Spec, project_id: Callable[[str], str]) -> Rules:
    """Return the rules of a spec.

    :param project_id: looks up the id of a project by its id or name.
    :raises SpecError: if the spec has no section ``reclaim``.
    :raises gpustack.base.errors.GpustackError: if a project can't be looked up.
    """
    if (section := spec.reclaim) is None:
        remedy = "add reclaim: {projects: [NAME], idle_after: {shutoff: 7d}}"
        raise SpecError("the spec has no section `reclaim`", remedy=remedy)
    states = section.idle_after.model_dump(exclude_none=True)
    return Rules(
        aliases=frozenset(alias for model in spec.models for alias in spec.requested_as(model)),
        projects=frozenset(map(project_id, section.projects)),
        idle_after={state.upper(): duration(text) for state, text in states.items()},
        grace=duration(section.grace),
        metadata=section.expired,
        expires={server: moment(text) for server, text in section.expires.items()},
        running=section.running,
        hosts=_hosts(spec),
    )


def _hosts(spec: Spec) -> dict[str, Patterns]:
    """The hosts with GPUs of each alias."""
    hosts = by_key(
        (alias, HostPattern.parse(text))
        for text, entry in spec.hosts.items()
        for alias in {alias for model in entry.models for alias in spec.requested_as(model)}
    )
    return {alias: Patterns(patterns) for alias, patterns in hosts.items()}


def columns(projects: Mapping[str, str], users: Mapping[str, str]) -> tuple[Column[Decision], ...]:
    """The columns of decisions.

    :param projects: names of projects by id.
    :param users: names of users by id.
    """
    return (
        Column("server", lambda entry: entry.server.id, "ID"),
        Column("server_name", lambda entry: entry.server.name, "Instance"),
        *_owner("project", projects),
        *_owner("user", users),
        Column("host", lambda entry: entry.server.host or None, "Host"),
        Column("flavor", lambda entry: entry.server.flavor),
        Column("gpus", lambda entry: entry.gpus, "GPUs"),
        Column("status", lambda entry: entry.server.status),
        Column("reason", lambda entry: entry.reason or None, "Idle", lambda entry: entry.reason or entry.held or "no"),
        Column("since", lambda entry: f"{entry.since:%FT%TZ}" if entry.since else None),
        Column("step", lambda entry: entry.step.value, "Next step", _step),
        Column("due", lambda entry: f"{entry.due:%FT%TZ}" if entry.due else None),
        Column("held", lambda entry: entry.held or None),
        Column("snapshot_gib", lambda entry: entry.snapshot),
        Column("findings", lambda entry: [f.to_dict() for f in entry.findings], "", lambda e: codes(e.findings, "")),
    )


def _owner(key: str, names: Mapping[str, str]) -> Iterator[Column[Decision]]:
    of, shown = attrgetter(f"server.{key}"), distinct(names)
    yield Column(key, of, key.capitalize(), lambda entry: shown(of(entry)))
    yield Column(f"{key}_name", lambda entry: names.get(of(entry)))


def _step(decision: Decision) -> str:
    found = codes(decision.findings, "")
    match decision.step:
        case Step.WAIT:
            return f"wait until {decision.due:%F %R} UTC"
        case Step.SHELVE if decision.snapshot:
            return f"shelve (snapshot of up to {decision.snapshot} GiB)"
        case _:
            return f"{decision.step.value} ({found})" if found else decision.step.value

"""Which project can use which GPUs on which hosts, and how a change moves that. Pure.

A project can use the GPUs of a flavor on a host if it has access to the flavor, its limit is above zero, the host
accepts the project, and flavor and host agree about required traits. Nova decides so with these filters:
``AggregateMultiTenancyIsolation``, ``isolate_aggregates`` and traits (``nova/scheduler``), and unified limits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpustack.changes.change import CloudChange
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.changes import AccessChange, FlavorChange
from gpustack.offer.flavor.flavors import PresentFlavor, gpus_without_spec
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.spec.extra_specs import ALIAS, forbidden_traits, required_traits

ANYBODY = ""
"""A project that nothing names; as the project of a limit, the default."""
_UNKNOWN_HOST = Aggregate(name="", hosts=frozenset())
Rights = Mapping[tuple[str, str], tuple[int, float]]
"""By project and kind of GPU: the hosts as bits of a number, and the limit."""


@dataclass(frozen=True, kw_only=True)
class FlavorRight:
    """What a flavor permits.

    :ivar gpus: the aliases, and the resource classes of vGPUs, that it requests.
    :ivar traits: the traits that its hosts must have.
    :ivar forbidden: those that they must not have.
    :ivar projects: ids of the projects that may use it; None for all.
    :ivar others: of a flavor whose list of projects is unknown, those that are known not to be in it; else None.
    """

    gpus: frozenset[str]
    traits: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    projects: frozenset[str] | None = None
    others: frozenset[str] | None = None


def flavor_rights(
    present: Iterable[PresentFlavor], changes: Iterable[CloudChange], lists: Mapping[str, Collection[str]]
) -> dict[str, FlavorRight]:
    """The rights of the flavors in a cloud, by id.

    :param changes: tell of further projects whether they may use a flavor.
    :param lists: the projects of private flavors, as far as they were read.
    """
    moved: dict[str, dict[str, bool]] = {}
    for change in changes:
        if isinstance(change, AccessChange):
            moved.setdefault(change.id, {}).update(change.seen)
    rights = {}
    for flavor in present:
        known = moved.get(flavor.id, {})
        listed = lists.get(flavor.id, [project for project, now in known.items() if now])
        rights[flavor.id] = FlavorRight(
            gpus=frozenset(gpus_without_spec(flavor.extra_specs)),
            traits=required_traits(flavor.extra_specs),
            forbidden=forbidden_traits(flavor.extra_specs),
            projects=None if flavor.public else frozenset(listed),
            others=None if flavor.public or flavor.id in lists else frozenset(known),
        )
    return rights


def decisive(changes: Sequence[CloudChange]) -> Iterator[str]:
    """The ids of private flavors whose projects decide about the order: others give what these no longer give."""
    flavors = [change for change in changes if isinstance(change, FlavorChange) and change.seen is not None]
    yield from (change.id for change in flavors if _moves_gpus((change.wanted or {}).get("extra_specs", {})))
    if any(change.wanted is not None for change in changes):
        yield from (change.id for change in flavors if change.lacks_projects)


@dataclass(frozen=True, kw_only=True)
class AccessState:
    """All that decides about access; without a part that was not read, that part permits everything.

    :ivar flavors: by id.
    :ivar hosts: each host, with its provider's uuid.
    :ivar outside: pairs of an aggregate and a host that Placement's copy of the aggregate lacks: the aggregate does not
        isolate the host.
    :ivar bearers: pairs of a trait and the uuid of a provider that has it, for the traits in ``known``.
    :ivar limits: by resource class and project.
    :ivar classes: the resource class that limits count, by alias.
    :ivar absent: the limit of a class without default.
    """

    flavors: Mapping[str, FlavorRight] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    outside: frozenset[tuple[str, str]] = frozenset()
    bearers: frozenset[tuple[str, str]] = frozenset()
    known: frozenset[str] = frozenset()
    limits: Mapping[tuple[str, str], int] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    absent: float = math.inf

    def after(self, changes: Iterable[CloudChange]) -> AccessState:
        """The state after changes."""
        flavors, aggregates, limits = dict(self.flavors), dict(self.aggregates), dict(self.limits)
        bearers = set(self.bearers)
        for change in changes:
            match change:
                case FlavorChange():
                    _change_flavor(flavors, change)
                case AccessChange() if change.id in flavors:
                    right = flavors[change.id]
                    given = frozenset(project for project, now in change.wanted.items() if now)
                    projects = None if right.projects is None else (right.projects - change.wanted.keys()) | given
                    others = None if right.others is None else right.others | change.wanted.keys()
                    flavors[change.id] = replace(right, projects=projects, others=others)
                case LimitChange():
                    _put(limits, (change.about["resource_class"], change.about["project"]), change.wanted)
                case TraitChange():
                    (bearers.add if change.wanted else bearers.discard)((change.about["trait"], change.id))
                case AggregateChange():
                    made = None if change.wanted is None else Aggregate(name=change.name, hosts=frozenset())
                    _put(aggregates, change.name, made)
                case MetadataChange():
                    aggregate = aggregates.get(change.name, _UNKNOWN_HOST)
                    values = {**aggregate.metadata, **change.wanted}
                    metadata = {key: value for key, value in values.items() if value is not None}
                    aggregates[change.name] = replace(aggregate, metadata=metadata)
                case HostChange():
                    name, host = change.about["aggregate"], {change.about["host"]}
                    aggregate = aggregates.get(name, _UNKNOWN_HOST)
                    hosts = aggregate.hosts | host if change.wanted else aggregate.hosts - host
                    aggregates[name] = replace(aggregate, hosts=hosts)
        return replace(self, flavors=flavors, aggregates=aggregates, limits=limits, bearers=frozenset(bearers))

    def projects(self) -> frozenset[str]:
        """The projects that anything names, and one that nothing names."""
        named = [right.projects for right in self.flavors.values() if right.projects]
        named += [aggregate.projects for aggregate in self.aggregates.values()]
        return frozenset({ANYBODY}).union(*named, {project for _, project in self.limits})

    def rights(self, projects: frozenset[str]) -> dict[tuple[str, str], tuple[int, float]]:
        """What each project can use."""
        found: dict[tuple[str, str], tuple[int, float]] = {}
        accepted = dict(self.accepted(projects))
        for flavor, right in self.flavors.items():
            fits = self.fits(right)
            for project in projects:
                kind = _kind(flavor, right, project)
                hosts, limit = accepted[project] & fits, self._limit(right, project)
                if kind is not None and hosts and limit:
                    found[project, kind] = (hosts | found.get((project, kind), (0, 0))[0], limit)
        return found

    def bits(self) -> dict[str, int]:
        """Each host as a bit of a number."""
        return {host: 1 << number for number, host in enumerate(self.hosts)} or {"": 1}

    def accepted(self, projects: frozenset[str]) -> Iterator[tuple[str, int]]:
        """Each project with the hosts whose aggregates admit it."""
        bits = self.bits()
        reserved = [
            (sum(bit for host, bit in bits.items() if aggregate.has(host)), aggregate.projects)
            for aggregate in self.aggregates.values()
            if aggregate.projects
        ]
        unreserved = sum(bits.values())
        for hosts, _ in reserved:
            unreserved &= ~hosts
        for project in projects:
            of_project = unreserved
            for hosts, accepted in reserved:
                # An empty name in the metadata is no project, not even one that nothing names.
                of_project |= hosts if project != ANYBODY and project in accepted else 0
            yield project, of_project

    def fits(self, right: FlavorRight) -> int:
        """The hosts that agree with a flavor about traits."""
        bits = self.bits()
        fitting = sum(bits.values())
        for trait in (right.traits | right.forbidden) & self.known if self.hosts else ():
            having = sum(bits[host] for host, uuid in self.hosts.items() if (trait, uuid) in self.bearers)
            fitting &= having if trait in right.traits else ~having
        for name, aggregate in self.aggregates.items():
            if aggregate.traits - right.traits:
                kept = (host for host in bits if aggregate.has(host) and (name, host) not in self.outside)
                fitting &= ~sum(bits[host] for host in kept)
        return fitting

    def _limit(self, right: FlavorRight, project: str) -> float:
        numbers = []
        for name in (self.classes[alias] for alias in right.gpus if alias in self.classes):
            number = self.limits.get((name, project), self.limits.get((name, ANYBODY), self.absent))
            numbers.append(math.inf if number < 0 else number)
        return min(numbers, default=math.inf)


def _kind(flavor: str, right: FlavorRight, project: str) -> str | None:
    """The kind of GPU that a flavor gives a project; None if it has no access.

    Of a flavor with an unknown list, every project that no change moves may have access, then as before.
    """
    if not right.gpus:
        return None
    gpus = ",".join(sorted(right.gpus))
    if right.projects is None or project in right.projects:
        return gpus
    return None if right.others is None or project in right.others else f"{gpus} of {flavor}"


def _put(entries: dict[Any, Any], key: object, value: object) -> None:
    """Set an entry; None removes it."""
    entries.pop(key, None)
    if value is not None:
        entries[key] = value


def _change_flavor(flavors: dict[str, FlavorRight], change: FlavorChange) -> None:
    right = flavors.pop(change.id, None)
    if change.wanted is None:
        return
    specs = change.wanted.get("extra_specs", {})
    if change.seen is None:
        projects = None if change.wanted["public"] else frozenset(change.wanted.get("access", ()))
        traits, forbidden = required_traits(specs), forbidden_traits(specs)
        gpus = frozenset(gpus_without_spec(specs))
        flavors[change.id] = FlavorRight(gpus=gpus, traits=traits, forbidden=forbidden, projects=projects)
    elif right is not None:
        before = change.seen.get("extra_specs", {})
        traits = (right.traits - required_traits(before)) | required_traits(specs)
        forbidden = (right.forbidden - forbidden_traits(before)) | forbidden_traits(specs)
        gpus = frozenset(gpus_without_spec(specs)) if _moves_gpus(specs) else right.gpus
        flavors[change.id] = replace(right, traits=traits, forbidden=forbidden, gpus=gpus)


def _moves_gpus(specs: Mapping[str, str | None]) -> bool:
    return ALIAS in specs or bool(gpus_without_spec(specs))


def breach(old: Rights, new: Rights, now: Rights) -> str:
    """The project that has a right that neither ``old`` nor ``new`` allows, or lacks one that both allow.

    :returns: the project with its kind of GPU, or an empty text.
    """
    for project, kind in sorted({*old, *new, *now}):
        (old_hosts, old_limit), (new_hosts, new_limit), (hosts, limit) = (
            rights.get((project, kind), (0, 0.0)) for rights in (old, new, now)
        )
        both, least = old_hosts & new_hosts, min(old_limit, new_limit)
        gained = (
            hosts & ~old_hosts & ~new_hosts
            or (hosts & ~new_hosts and limit > old_limit)
            or (hosts & ~old_hosts and limit > new_limit)
            or (hosts and limit > max(old_limit, new_limit))
        )
        if gained or (both & ~hosts) or (both and limit < least):
            return f"{project or 'any project'} ({kind})"
    return ""

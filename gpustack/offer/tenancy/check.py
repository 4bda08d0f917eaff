"""Findings about what the plan does not change: other aggregates, Placement, flavors by hand, running instances."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key
from gpustack.base.text import listed
from gpustack.cloud.servers import Server
from gpustack.offer.tenancy.model import Present, Wanted, WantedAggregate, is_ours, outside_placement

_LISTED = 5


def doubts(wanted: Wanted, present: Present) -> Iterator[Finding]:
    """Yield all findings that do not block the plan."""
    for name, hosts in wanted.missing.items():
        yield finding(Code.TENANCY_HOST_UNKNOWN, place=name, hosts=listed(hosts, _LISTED))
    outside = set(outside_placement(present))
    by_host = defaultdict[str, list[Server]](list)
    for server in present.servers:
        by_host[key(server.host)].append(server)
    for entry in wanted.aggregates:
        for host in sorted(host for host in entry.hosts if (entry.name, host) in outside):
            yield finding(Code.PLACEMENT_AGGREGATE_DIFFERS, place=host, aggregate=entry.name)
        yield from _instances(entry, wanted, by_host)
    yield from _of_others(wanted, present)
    yield from _by_hand(wanted, present)


def accepted(wanted: Wanted, host: str) -> frozenset[str]:
    """The ids of the projects that a host accepts by the spec; empty for all."""
    return frozenset().union(*(entry.projects for entry in wanted.aggregates if host in entry.hosts))


def _of_others(wanted: Wanted, present: Present) -> Iterator[Finding]:
    """Aggregates of others that decide too who gets a host."""
    hosts = {host for entry in wanted.aggregates for host in entry.hosts}
    for aggregate in present.aggregates:
        for host in sorted(host for host in hosts if aggregate.has(host)) if not is_ours(aggregate) else ():
            allowed = accepted(wanted, host)
            if aggregate.projects - allowed:
                yield finding(
                    Code.PROJECTS_OF_OTHER_AGGREGATE,
                    place=host,
                    aggregate=aggregate.name,
                    projects=", ".join(sorted(aggregate.projects)),
                    also=" too" if allowed else " only",
                )
            for trait in sorted(aggregate.traits):
                lacking, _others = wanted.lacking(trait, present.flavors)
                if lacking and trait != wanted.trait:
                    yield finding(
                        Code.TRAIT_OF_OTHER_AGGREGATE,
                        place=host,
                        aggregate=aggregate.name,
                        trait=trait,
                        flavors=listed(lacking, _LISTED),
                    )


def _by_hand(wanted: Wanted, present: Present) -> Iterator[Finding]:
    """GPU flavors without the trait that are not of the spec."""
    _lacking, others = wanted.lacking(wanted.trait, present.flavors)
    for name in others if wanted.isolates else ():
        yield finding(Code.FLAVOR_WITHOUT_TRAIT, place=name, flavor=name, trait=wanted.trait)


def _instances(entry: WantedAggregate, wanted: Wanted, by_host: Mapping[str, Sequence[Server]]) -> Iterator[Finding]:
    """Instances on the hosts that the hosts would refuse, if they came again."""
    for host in sorted(entry.hosts):
        here = by_host.get(key(host), ())
        lacking = [server for server in here if entry.isolated and wanted.trait not in server.traits]
        gpu = [server for server in lacking if wanted.has_gpus(server.devices, server.classes)]
        ordinary = [server for server in lacking if server not in gpu]
        allowed = accepted(wanted, host)
        strangers = [server for server in here if allowed and server.project not in allowed]
        for servers, reason in (
            (ordinary, "the flavor does not require the trait of the GPU hosts"),
            (strangers, "the host is reserved for other projects"),
        ):
            if servers:
                yield finding(Code.INSTANCE_STAYS, place=host, instances=_named(servers), reason=reason)
        if gpu:
            yield finding(Code.INSTANCE_WITHOUT_TRAIT, place=host, instances=_named(gpu), trait=wanted.trait)


def _named(servers: list[Server]) -> str:
    names = [f"{server.id} ({server.name}, project {server.project})" for server in servers]
    return listed(sorted(names), _LISTED)

"""Counts of GPUs by host, model and project. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from gpustack.base.by_key import by_key
from gpustack.base.text import listed
from gpustack.fleet.index import Index
from gpustack.fleet.model import MDEV, Fleet, Gpu, HostCount, State
from gpustack.hosts.readiness.assessment import State as Readiness


def host_counts(listed: Iterable[Gpu], index: Index) -> tuple[HostCount, ...]:
    """The GPUs by host and model. Without addresses, the total is that of the host's facts, or unknown."""
    counts = []
    for (host, model), members in by_key(((gpu.host, gpu.model), gpu) for gpu in listed if gpu.host).items():
        used, per_gpu = sum(gpu.used for gpu in members), all(gpu.address for gpu in members)
        cards = tuple((gpu.free, gpu.units) for gpu in members if gpu.dev_type == MDEV)
        total: int | None = sum(gpu.units for gpu in members)
        free: int | None = sum(gpu.free for gpu in members)
        if not per_gpu:
            held = [verdict.gpu for verdict in index.judged(host) if verdict.state is Readiness.READY]
            names = {gpu.name for gpu in held}
            # Aliases have no cards: with one model on the host, that is it.
            total = len([g for g in held if len(names) == 1 or g.name == model]) or None
            free = None if total is None else max(total - used, 0)
        of_host = HostCount(host=host, model=model, total=total, free=free, used=used, per_gpu=per_gpu, cards=cards)
        counts.append(of_host)
    return tuple(sorted(counts, key=lambda count: (count.host, count.model)))


@dataclass(kw_only=True)
class Group:
    """The GPUs of one host, model or project.

    :ivar total: the number of units; None if a part of it is unknown.
    :ivar free: the number of units that new instances can get; None if unknown.
    :ivar servers: the instances.
    """

    name: str
    total: int | None = 0
    free: int | None = 0
    states: Counter[State] = field(default_factory=Counter)
    servers: set[str] = field(default_factory=set)

    def add(self, count: HostCount) -> None:
        """Add the GPUs of a host that are not listed, because nobody has them."""
        known = count.total is not None and self.total is not None
        self.total = (self.total or 0) + (count.total or 0) - count.used if known else None
        self.free = self.free + count.free if count.free is not None and self.free is not None else None


def grouped(fleet: Fleet, by: str) -> list[Group]:
    """Count the GPUs of a fleet by ``host``, ``model`` or ``project``; in the order of the names."""
    groups: dict[str, Group] = {}
    for gpu in fleet.gpus:
        for name, units, state in _parts(gpu, by):
            group = groups.setdefault(name, Group(name=name))
            group.states[state] += units
            group.total = (group.total or 0) + units
            group.free = (group.free or 0) + (units if state is State.FREE else 0)
            of_group = [holder for holder in gpu.holders if by != "project" or holder.project == name]
            group.servers |= {holder.server.id for holder in of_group if holder.server}
    for count in fleet.counts if by == "host" else ():
        if not count.per_gpu and count.host in groups:
            groups[count.host].add(count)
    if by == "model" and not fleet.located:  # a host without instances is not listed, and may have any model
        for group in groups.values():
            group.total = group.free = None
    return [groups[name] for name in sorted(groups)]


def _parts(gpu: Gpu, by: str) -> Iterator[tuple[str, int, State]]:
    """The units of a GPU with the group and the state of each part."""
    if by == "project":
        taken = 0
        for holder in gpu.holders:
            taken += holder.amount
            yield holder.project, holder.amount, gpu.state
        if gpu.state in (State.CLAIMED, State.ALLOCATED, State.INCONSISTENT) and gpu.used > taken:
            yield "", gpu.used - taken, gpu.state
        return
    name = gpu.host if by == "host" else gpu.model
    yield from ((name, units, state) for state, units in units_by_state(gpu))


def units_by_state(gpu: Gpu) -> Iterator[tuple[State, int]]:
    """The number of units in each state; with virtual functions, a GPU has units in use and free ones."""
    if gpu.units == 1 or gpu.state not in (State.FREE, State.ALLOCATED):
        yield gpu.state, gpu.units
        return
    yield State.ALLOCATED, gpu.used
    yield State.FREE, gpu.units - gpu.used


def by_project(fleet: Fleet) -> list[Group]:
    """Count the GPUs of projects from the flavors of their instances, without the allocations of each instance.

    The group without a name has the GPUs that are in use beyond these.
    """
    groups: dict[str, Group] = {}
    for server in fleet.servers:
        if server.placed:
            group = groups.setdefault(server.project, Group(name=server.project, free=None))
            group.states[State.ALLOCATED] += server.count
            group.total = (group.total or 0) + server.count
            group.servers.add(server.id)
    if (rest := sum(gpu.used for gpu in fleet.gpus) - sum(group.total or 0 for group in groups.values())) > 0:
        groups[""] = Group(name="", total=rest, free=None, states=Counter({State.ALLOCATED: rest}))
    return [groups[name] for name in sorted(groups)]


def noted(fleet: Fleet) -> Fleet:
    """Return the fleet with notes on the free GPUs of hosts whose nova-compute is disabled, down or unmapped."""
    return replace(fleet, notes=(*fleet.notes, *_notes(fleet)))


def _notes(fleet: Fleet) -> Iterator[str]:
    free: Counter[str] = Counter()
    for gpu in fleet.gpus:
        free[gpu.host] += gpu.free
    for count in fleet.counts:
        free[count.host] += 0 if count.per_gpu else count.free or 0
    services = {gpu.host: gpu.service for gpu in fleet.gpus}
    for state in ("disabled", "down", "unmapped"):
        if hosts := sorted(host for host, number in free.items() if number and services.get(host) == state):
            yield (
                f"free GPUs on hosts whose nova-compute is {state}, which no new instance gets:"
                f" {sum(free[host] for host in hosts)} on {listed(hosts, 8)}"
            )

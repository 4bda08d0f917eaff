"""The hosts of a report, in groups: their GPUs as texts, and their counts. Pure, and created one group at a time."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby, islice

from gpustack.base.by_key import by_key
from gpustack.base.text import clipped
from gpustack.fleet.model import Fleet, Gpu, Holder, State
from gpustack.fleet.summary import Group, grouped

GROUP = 48
"""The most hosts of a group; a fleet with more hosts has several groups."""
_UNKNOWN_HOST = "unknown host"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The GPUs of one or several groups; None for an unknown number."""

    total: int | None
    free: int | None
    states: Counter[State] = field(default_factory=Counter)
    instances: int = 0

    @property
    def unlisted(self) -> int | None:
        """The GPUs that exist on hosts, but that no source lists; None if their number is unknown."""
        return None if self.total is None else self.total - self.states.total()

    @property
    def text(self) -> str:
        """``3 of 8 free``."""
        if self.total is None or self.free is None:
            return f"{self.states.total()} in use, others unknown"
        return f"{self.free} of {self.total} free"

    def shares(self) -> list[tuple[State, float, float]]:
        """The parts of a bar: state, start and width in percent; empty if the total is unknown."""
        parts, start, total = [], 0.0, self.total or 0
        states = self.states + Counter({State.FREE: self.unlisted or 0})
        for state in State if total else ():
            if width := 100 * states[state] / total:
                parts.append((state, round(start, 2), round(width, 2)))
                start += width
        return parts


def summed(groups: Iterable[Group | Counts]) -> Counts:
    """The sum of counts. Instances are not summed: one may be in several groups."""
    total: int | None = 0
    free: int | None = 0
    states: Counter[State] = Counter()
    for group in groups:
        total = None if total is None or group.total is None else total + group.total
        free = None if free is None or group.free is None else free + group.free
        states.update(group.states)
    return Counts(total=total, free=free, states=states)


@dataclass(frozen=True, kw_only=True)
class Use:
    """A holder of a GPU as texts."""

    instance: str
    about: str = ""
    project: str = ""
    user: str = ""
    since: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuView:
    """A GPU of the page.

    :ivar number: its number on the page, from which the link to it is made.
    :ivar units: used and offered virtual functions: ``3/8``; empty for other GPUs.
    """

    number: int
    address: str
    model: str
    state: State
    units: str = ""
    facts: str = ""
    uses: tuple[Use, ...] = ()

    @property
    def tip(self) -> str:
        """The words on hover and focus."""
        users = [f"{use.instance}{f' (project {use.project})' if use.project else ''}" for use in self.uses[:2]]
        more = [f"and {len(self.uses) - 2} more"] if len(self.uses) > 2 else []
        words = ", ".join((*users, *more))
        return " ".join(filter(None, (self.address, self.units, self.state.value))) + (f": {words}" if words else "")


@dataclass(frozen=True, kw_only=True)
class HostView:
    """A host of the page, with its GPUs.

    :ivar node: the name of its compute node.
    """

    number: int
    name: str
    node: str
    models: str
    gpus: tuple[GpuView, ...]
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class HostGroup:
    """Hosts whose names begin alike.

    :ivar is_part: whether the fleet has further groups.
    """

    hosts: tuple[HostView, ...]
    is_part: bool

    @property
    def title(self) -> str:
        """``gpu001 to gpu048``."""
        first, last = self.hosts[0].name, self.hosts[-1].name
        return first if first == last else f"{first} to {last}"

    @property
    def counts(self) -> Counts:
        """The sum of its hosts."""
        return summed(host.counts for host in self.hosts)


def host_groups(fleet: Fleet) -> Iterator[HostGroup]:
    """The hosts of a fleet in groups, each created when it is needed; one group for a small fleet."""
    is_large = len({count.host for count in fleet.counts}) > GROUP
    for _start, hosts in groupby(_hosts(fleet), key=lambda host: re.split(r"\d+", host.name)[0] if is_large else ""):
        while members := tuple(islice(hosts, GROUP)):
            yield HostGroup(hosts=members, is_part=is_large)


def _hosts(fleet: Fleet) -> Iterator[HostView]:
    counts = by_key((entry.host, entry) for entry in fleet.counts)
    gpu_numbers = count(1)
    by_host = groupby(fleet.gpus, key=lambda gpu: gpu.host)
    for number, (name, members) in enumerate(by_host, 1):
        gpus = tuple(members)
        part = Fleet(gpus=gpus, counts=tuple(counts.get(name, ())))
        models = Counter(gpu.model for gpu in gpus)
        yield HostView(
            number=number,
            name=clipped(name) or _UNKNOWN_HOST,
            node=gpus[0].node or name,
            models=", ".join(f"{times} {TIMES} {clipped(model) or 'unknown model'}" for model, times in models.items()),
            gpus=tuple(_gpu(fleet, gpu, next(gpu_numbers), mixed=len(models) > 1) for gpu in gpus),
            counts=summed(grouped(part, "host")),
        )


def _gpu(fleet: Fleet, gpu: Gpu, number: int, *, mixed: bool) -> GpuView:
    facts = (
        clipped(gpu.model) if mixed else "",
        f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else "",
        f"IOMMU group {gpu.iommu_group}" if gpu.iommu_group is not None else "",
        clipped(gpu.link),
        f"nova-compute is {gpu.service}" if gpu.service not in ("", "up") else "",
    )
    return GpuView(
        number=number,
        address=gpu.address or "address unknown",
        model=clipped(gpu.model),
        state=gpu.state,
        units=f"{gpu.used}/{gpu.units}" if gpu.units > 1 else "",
        facts=", ".join(filter(None, facts)),
        uses=tuple(_use(fleet, holder) for holder in gpu.holders),
    )


def _use(fleet: Fleet, holder: Holder) -> Use:
    project = fleet.projects.get(holder.project, holder.project)
    user = fleet.users.get(holder.user, holder.user)
    if (server := holder.server) is None:
        kind = "migration" if holder.migration else "consumer"
        return Use(instance=f"{kind} {clipped(holder.consumer)}", project=clipped(project), user=clipped(user))
    about = (server.flavor, server.status, "moving" if holder.migration else "", server.id if server.name else "")
    return Use(
        instance=clipped(server.name or server.id),
        about=", ".join(clipped(text) for text in about if text),
        project=clipped(project),
        user=clipped(user),
        since=f"{server.since:%F %R}" if server.since else "",
    )


def columns(counts: Iterable[Counts | Group]) -> Sequence[State]:
    """The states that occur, for the columns of a table: narrow screens have no room for empty ones."""
    states = summed(counts).states
    return [state for state in State if states[state]]

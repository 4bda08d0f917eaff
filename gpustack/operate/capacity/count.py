"""Count the instances of a flavor that fit on hosts, and name the reasons against more. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from gpustack.base.by_key import by_key
from gpustack.base.text import listed
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.model import Accepted, Capacity, Demand, Host, HostCapacity, Limit, Reason
from gpustack.operate.capacity.room import Room
from gpustack.operate.capacity.walk import walk

UNKNOWN_GPUS = "the GPUs of {hosts} are not known"
UNKNOWN_ALIAS = "the GPUs of the alias {alias} are not known: no model of the spec has it"
SHOWN_HOSTS = 3
_UNKNOWN = Scheduler()


def capacity(
    hosts: Sequence[Host], demand: Demand, accepted: Accepted | None = None, scheduler: Scheduler = _UNKNOWN
) -> Capacity:
    """Count the instances of one flavor, as if no other were booted.

    :param accepted: None for all hosts.
    :param scheduler: the options of nova-scheduler that are known.
    """
    counted = [_on(host, demand, accepted, scheduler) for host in hosts]
    unknown = [host.name for host in hosts if host.cards is None]
    doubtful = by_key((doubt, entry.host) for entry in counted for doubt in entry.doubts)
    doubts = {UNKNOWN_GPUS: unknown} if unknown else {}
    doubts |= {UNKNOWN_ALIAS.format(alias=alias): [] for alias in demand.unknown if not demand.refused}
    return Capacity(
        demand=demand,
        least=sum(entry.certain for entry in counted),
        most=None if doubts else sum(entry.fits for entry in counted),
        free=sum(host.count(demand.aliases) for host in hosts),
        free_is_limit=any(host.doubt and host.count(demand.aliases) for host in hosts),
        hosts=tuple(entry for entry in counted if entry.fits or entry.left),
        limits=tuple(_limits(hosts, demand, counted)),
        doubts=tuple(
            doubt.replace("{hosts}", listed(names, SHOWN_HOSTS)) for doubt, names in {**doubts, **doubtful}.items()
        ),
    )


def _on(host: Host, demand: Demand, accepted: Accepted | None, scheduler: Scheduler) -> HostCapacity:
    room = Room(host)
    fits = certain = 0
    doubts: dict[str, None] = {}
    while (found := walk(room, demand, scheduler, accepted)).claim is not None:
        room.apply(found.claim)
        doubts.update(dict.fromkeys(found.doubts))
        certain += not doubts
        fits += 1
    left, failed = room.count(demand.aliases), found.failed
    return HostCapacity(
        host=host.name,
        zone=host.zone,
        fits=fits,
        certain=certain,
        left=left,
        reason=failed.reason if failed and left else None,
        failed=failed,
        doubts=tuple(doubts),
    )


def _limits(hosts: Sequence[Host], demand: Demand, counted: Sequence[HostCapacity]) -> list[Limit]:
    """The reasons with their GPUs, most GPUs first."""
    by_reason: defaultdict[Reason, Counter[str]] = defaultdict(Counter)
    for entry in counted:
        if entry.reason is not None:
            by_reason[entry.reason][entry.host] = entry.left
    for host in hosts:
        for (alias, reason), count in host.withheld.items():
            if alias in demand.gpus:
                by_reason[reason][host.name] += count
    limits = [
        Limit(reason=reason, gpus=sum(gpus.values()), hosts=tuple(gpus), most=max(gpus.values()))
        for reason, gpus in by_reason.items()
    ]
    return sorted(limits, key=lambda limit: (-limit.gpus, limit.reason))

"""Count the instances of a flavor that fit on hosts, and name the reasons against more. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from gpustack.base.text import listed
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.aggregates import Refusal, refusals
from gpustack.operate.capacity.model import Capacity, Demand, Host, HostCapacity, Limit, Reason
from gpustack.operate.capacity.room import Claim, Room

UNKNOWN_GPUS = "the GPUs of {hosts} are not known"
UNKNOWN_NODES = "the NUMA nodes of {hosts} are not known"
SHOWN_HOSTS = 3
_UNKNOWN = Scheduler()


def capacity(
    hosts: Sequence[Host], demand: Demand, accepted: Collection[str] | None = None, scheduler: Scheduler = _UNKNOWN
) -> Capacity:
    """Count the instances of one flavor, as if no other were booted.

    :param accepted: the uuids of the hosts on which Placement accepts one instance; None for all.
    :param scheduler: the options of nova-scheduler that are known.
    """
    reasons = [list(refusals(host, demand, scheduler)) for host in hosts]
    hosts = [_closed(host, of_host) for host, of_host in zip(hosts, reasons, strict=True)]
    counted = [_on(host, demand, accepted) for host in hosts]
    number = sum(entry.fits for entry in counted)
    more, fewer = _doubts(hosts, demand, {entry.host for entry in counted if entry.fits})
    doubtful = [(entry, of_host) for entry, of_host in zip(counted, reasons, strict=True) if entry.fits and of_host]
    refused = sum(entry.fits for entry, _of_host in doubtful)
    perhaps = dict.fromkeys(refusal.because for _entry, of_host in doubtful for refusal in of_host)
    return Capacity(
        demand=demand,
        least=0 if fewer else number - refused,
        most=None if more else number,
        free=sum(host.count(demand.aliases) for host in hosts),
        free_is_limit=any(host.doubt and host.count(demand.aliases) for host in hosts),
        hosts=tuple(entry for entry in counted if entry.fits or entry.left),
        limits=tuple(_limits(hosts, demand, counted)),
        doubts=(*more, *fewer, *perhaps),
    )


def _closed(host: Host, reasons: Sequence[Refusal]) -> Host:
    certain = any(refusal.certain for refusal in reasons)
    return replace(host, closed=Reason.AGGREGATE) if certain and host.closed is None else host


def _on(host: Host, demand: Demand, accepted: Collection[str] | None) -> HostCapacity:
    room = Room(host)
    fits = 0
    while isinstance(result := room.take(demand), Claim):
        if accepted is not None and host.uuid not in accepted:
            room.put_back(result)
            result = Reason.PLACEMENT
            break
        fits += 1
    left = room.count(demand.aliases)
    return HostCapacity(host=host.name, zone=host.zone, fits=fits, left=left, reason=result if left else None)


def _doubts(hosts: Sequence[Host], demand: Demand, fitting: Collection[str]) -> tuple[list[str], list[str]]:
    """Why more may fit, and why fewer may."""
    more, fewer = [], []
    if unknown := [host.name for host in hosts if host.cards is None]:
        more.append(UNKNOWN_GPUS.format(hosts=listed(unknown, SHOWN_HOSTS)))
    known = [host for host in hosts if host.name in fitting]
    if demand.nodes is not None and (blind := [host.name for host in known if host.nodes is None]):
        fewer.append(UNKNOWN_NODES.format(hosts=listed(blind, SHOWN_HOSTS)))
    fewer += dict.fromkeys(host.doubt for host in known if host.doubt)
    if demand.unmodelled:
        fewer.append(f"the effect of {', '.join(demand.unmodelled)} is not counted")
    if "DISK_GB" in demand.amounts and (sharing := [host.name for host in known if host.shares_disk]):
        fewer.append(f"the disk of {listed(sharing, SHOWN_HOSTS)} is a shared pool")
    return more, fewer


def _limits(hosts: Sequence[Host], demand: Demand, counted: Sequence[HostCapacity]) -> list[Limit]:
    """The reasons with their GPUs, most GPUs first."""
    by_reason: dict[Reason, dict[str, int]] = {}
    for entry in counted:
        if entry.reason is not None:
            by_reason.setdefault(entry.reason, {})[entry.host] = entry.left
    for host in hosts:
        for (alias, reason), count in host.withheld.items():
            if alias in demand.gpus:
                of_reason = by_reason.setdefault(reason, {})
                of_reason[host.name] = of_reason.get(host.name, 0) + count
    limits = [
        Limit(reason=reason, gpus=sum(gpus.values()), hosts=tuple(gpus), most=max(gpus.values()))
        for reason, gpus in by_reason.items()
    ]
    return sorted(limits, key=lambda limit: (-limit.gpus, limit.reason))

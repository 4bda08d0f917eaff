"""The rows of `gpustack capacity`, and the reasons in words. Pure."""

from collections.abc import Sequence

from gpustack.base.text import listed
from gpustack.operate.capacity.count import SHOWN_HOSTS
from gpustack.operate.capacity.model import Capacity, Demand, Limit, Reason

COLUMNS = ("Flavor", "GPUs", "Fits", "Free GPUs", "Limits")
FIELDS = ("flavor", "gpus", "least", "most", "free_gpus", "free_gpus_exact", "hosts", "limits", "doubts")
HOST_COLUMNS = ("Flavor", "Host", "Zone", "Fits", "GPUs left", "Limit")
_TEXTS = {
    Reason.VCPUS: "too few vCPUs",
    Reason.RAM: "too little RAM",
    Reason.DISK: "too little disk",
    Reason.RESOURCE: "too little of another resource",
    Reason.NUMA: "no NUMA nodes with room",
    Reason.PLACEMENT: "refused by Placement",
    Reason.AGGREGATE: "refused by an aggregate",
    Reason.ZONE: "in another availability zone",
    Reason.DISABLED: "service disabled",
    Reason.DOWN: "service down",
    Reason.RESERVED: "reserved",
    Reason.NOT_OFFERED: "not offered",
    Reason.INCONSISTENT: "inconsistent",
    Reason.UNPREPARED: "host not prepared",
    Reason.BLOCKED: "blocked, see `gpustack scan`",
}


def fits(capacity: Capacity) -> str:
    """The number in words; never a number alone if it is not certain."""
    least, most = capacity.least, capacity.most
    if least == most:
        return str(least)
    if most is None:
        return f"at least {least}" if least else "unknown"
    return f"at most {most}"


def limit_text(limit: Limit, demand: Demand) -> str:
    """A reason with its GPUs."""
    if limit.reason is Reason.FRAGMENTS:
        if len(demand.gpus) > 1:
            return f"{_gpus(limit.gpus)} free, not in the requested combination"
        return f"{_gpus(limit.gpus)} free, none in a group of {demand.count}"
    return f"{_gpus(limit.gpus)}: {_TEXTS[limit.reason]} ({listed(limit.hosts, SHOWN_HOSTS)})"


def host_text(reason: Reason | None, demand: Demand) -> str:
    """The reason of one host."""
    if reason is None:
        return ""
    return f"fewer than {demand.count} GPUs left" if reason is Reason.FRAGMENTS else _TEXTS[reason]


def request(demand: Demand) -> str:
    """The requested GPUs: ``8 k4200``."""
    return ", ".join(f"{count} {alias}" for alias, count in demand.gpus.items())


def text_row(capacity: Capacity) -> tuple[object, ...]:
    """The cells of :data:`COLUMNS`."""
    limits = "\n".join(limit_text(limit, capacity.demand) for limit in capacity.limits)
    return (capacity.demand.flavor, request(capacity.demand), fits(capacity), _free(capacity), limits or "-")


def data_row(capacity: Capacity) -> tuple[object, ...]:
    """The values of :data:`FIELDS`."""
    return (
        capacity.demand.flavor,
        dict(capacity.demand.gpus),
        capacity.least,
        capacity.most,
        capacity.free,
        capacity.most is not None and not capacity.free_is_limit,
        [
            {
                "host": host.host,
                "zone": host.zone or None,
                "fits": host.fits,
                "gpus_left": host.left,
                "reason": host.reason and host.reason.value,
            }
            for host in capacity.hosts
        ],
        [
            {
                "reason": limit.reason.value,
                "gpus": limit.gpus,
                "hosts": list(limit.hosts),
                "most_on_one_host": limit.most,
            }
            for limit in capacity.limits
        ],
        list(capacity.doubts),
    )


def host_rows(capacities: Sequence[Capacity]) -> list[tuple[object, ...]]:
    """The cells of :data:`HOST_COLUMNS`, for each flavor and host."""
    return [
        (
            *(entry.demand.flavor, host.host, host.zone or "-", host.fits, host.left),
            host_text(host.reason, entry.demand) or "-",
        )
        for entry in capacities
        for host in entry.hosts
    ]


def _free(capacity: Capacity) -> str:
    if capacity.most is None:
        return "unknown" if capacity.free_is_limit else f"at least {capacity.free}"
    return f"at most {capacity.free}" if capacity.free_is_limit else str(capacity.free)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s'[: count != 1]}"

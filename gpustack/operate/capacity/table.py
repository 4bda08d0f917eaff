"""The rows of `gpustack capacity`, and the reasons in words. Pure."""

from gpustack.base.columns import Column, described
from gpustack.base.files import data_table
from gpustack.base.text import counted, in_lines, listed
from gpustack.operate.capacity.count import SHOWN_HOSTS
from gpustack.operate.capacity.model import Capacity, Demand, HostCapacity, Limit, Reason


def _words(reason: Reason) -> str:
    return str(data_table("reasons.toml")[reason]["words"])


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
    gpus = counted(limit.gpus, "GPU")
    if limit.reason is Reason.FRAGMENTS:
        if len(demand.gpus) > 1:
            return f"{gpus} free, not in the requested combination"
        return f"{gpus} free, none in a group of {demand.count}"
    return f"{gpus}: {_words(limit.reason)} ({listed(limit.hosts, SHOWN_HOSTS)})"


def host_text(reason: Reason | None, demand: Demand) -> str:
    """The reason of one host."""
    if reason is None:
        return ""
    return f"fewer than {counted(demand.count, 'GPU')} left" if reason is Reason.FRAGMENTS else _words(reason)


def request(demand: Demand) -> str:
    """The requested GPUs: ``8 k4200``."""
    return ", ".join(f"{count} {alias}" for alias, count in demand.gpus.items())


def _name(demand: Demand) -> str:
    return demand.flavor if demand.in_cloud else f"{demand.flavor} (not in the cloud)"


def _free(capacity: Capacity) -> str:
    if capacity.most is None:
        return "unknown" if capacity.free_is_limit else f"at least {capacity.free}"
    return f"at most {capacity.free}" if capacity.free_is_limit else str(capacity.free)


HOST_COLUMNS: tuple[Column[tuple[Demand, HostCapacity]], ...] = (
    Column("flavor", lambda row: row[0].flavor, "Flavor"),
    Column("host", lambda row: row[1].host, "Host"),
    Column("zone", lambda row: row[1].zone or None, "Zone"),
    Column("fits", lambda row: row[1].fits, "Fits"),
    Column("gpus_left", lambda row: row[1].left, "GPUs left"),
    Column("reason", lambda r: r[1].reason and r[1].reason.value, "Limit", lambda r: host_text(r[1].reason, r[0])),
)
"""The columns of a flavor on each host."""
_LIMIT_COLUMNS: tuple[Column[Limit], ...] = (
    Column("reason", lambda limit: limit.reason.value),
    Column("gpus", lambda limit: limit.gpus),
    Column("hosts", lambda limit: list(limit.hosts)),
    Column("most_on_one_host", lambda limit: limit.most),
)
COLUMNS: tuple[Column[Capacity], ...] = (
    Column("flavor", lambda entry: entry.demand.flavor, "Flavor", lambda entry: _name(entry.demand)),
    Column("gpus", lambda entry: dict(entry.demand.gpus), "GPUs", lambda entry: request(entry.demand)),
    Column("least", lambda entry: entry.least, "Fits", fits),
    Column("most", lambda entry: entry.most),
    Column("free_gpus", lambda entry: entry.free, "Free GPUs", _free),
    Column("free_gpus_exact", lambda entry: entry.most is not None and not entry.free_is_limit),
    Column(
        "hosts",
        lambda entry: [described(HOST_COLUMNS[1:], (entry.demand, host)) for host in entry.hosts],
        "",
        lambda entry: listed([host.host for host in entry.hosts], SHOWN_HOSTS),
    ),
    Column(
        "limits",
        lambda entry: [described(_LIMIT_COLUMNS, limit) for limit in entry.limits],
        "Limits",
        lambda entry: in_lines(limit_text(limit, entry.demand) for limit in entry.limits),
        lines=True,
    ),
    Column("doubts", lambda entry: list(entry.doubts)),
    Column("in_cloud", lambda entry: entry.demand.in_cloud),
)
"""The columns of flavors."""

"""The rows of `gpustack gpu list`: GPUs and groups as plain data and as text. Pure."""

from collections.abc import Sequence
from datetime import datetime

from gpustack.fleet.model import Fleet, Gpu, Holder, State
from gpustack.fleet.summary import Group

COLUMNS = {
    "host": "Host",
    "address": "Address",
    "model": "Model",
    "state": "State",
    "server": "Instance",
    "project": "Project",
    "user": "User",
    "flavor": "Flavor",
    "since": "Since (UTC)",
}
"""The default columns: keys of :func:`describe` and their titles."""
LONG = {**COLUMNS, "status": "Status", "service": "Service", "numa_node": "NUMA", "units": "Units", "used": "Used"}
LONG["sources"] = "Sources"
FIELDS = (
    *("host", "node", "cell", "address", "model", "vendor_id", "product_id", "resource_class", "state", "server"),
    *("server_name", "status", "project", "project_name", "user", "user_name", "flavor", "since", "holders"),
    *(
        "units",
        "used",
        "reserved",
        "dev_type",
        "numa_node",
        "iommu_group",
        "link",
        "provider",
        "service",
        "out_of_service",
        "sources",
    ),
)
"""All columns: the keys of :func:`describe`, in its order."""
GROUP_COLUMNS = ("GPUs", "Free", "Claimed", "Allocated", "Reserved", "Unavailable", "Inconsistent", "Instances")
_TAKEN = (State.CLAIMED, State.ALLOCATED, State.INCONSISTENT)


def describe(fleet: Fleet, gpu: Gpu) -> dict[str, object]:
    """All fields of a GPU as plain data, in the order of output; unknown values are None."""
    holder, server = gpu.holder, gpu.server
    return {
        "host": gpu.host or None,
        "node": gpu.node or None,
        "cell": gpu.cell or None,
        "address": gpu.address or None,
        "model": gpu.model or None,
        "vendor_id": gpu.vendor_id or None,
        "product_id": gpu.product_id or None,
        "resource_class": gpu.resource_class or None,
        "state": gpu.state.value,
        "server": server.id if server else None,
        "server_name": server.name or None if server else None,
        "status": server.status or None if server else None,
        "project": holder.project or None if holder else None,
        "project_name": fleet.projects.get(holder.project) if holder else None,
        "user": holder.user or None if holder else None,
        "user_name": fleet.users.get(holder.user) if holder else None,
        "flavor": server.flavor or None if server else None,
        "since": f"{server.since:%FT%TZ}" if server and server.since else None,
        "holders": [_described(fleet, entry) for entry in gpu.holders],
        "units": gpu.units,
        "used": gpu.used,
        "reserved": gpu.reserved,
        "dev_type": gpu.dev_type or None,
        "numa_node": gpu.numa_node,
        "iommu_group": gpu.iommu_group,
        "link": gpu.link or None,
        "provider": gpu.provider or None,
        "service": gpu.service or None,
        "out_of_service": gpu.out_of_service or None,
        "sources": [source.value for source in gpu.sources],
    }


def _described(fleet: Fleet, holder: Holder) -> dict[str, object]:
    server = holder.server
    return {
        "consumer": holder.consumer,
        "server": server.id if server else None,
        "server_name": server.name or None if server else None,
        "status": server.status or None if server else None,
        "project": holder.project or None,
        "project_name": fleet.projects.get(holder.project),
        "user": holder.user or None,
        "user_name": fleet.users.get(holder.user),
        "flavor": server.flavor or None if server else None,
        "since": f"{server.since:%FT%TZ}" if server and server.since else None,
        "migration": holder.migration,
        "amount": holder.amount,
    }


def text(fleet: Fleet, gpu: Gpu, key: str) -> str:
    """Format a field of :func:`describe` for the table; ``-`` if it is unknown or empty."""
    holders = gpu.holders
    match key:
        case "server":
            return _joined([_called(holder) for holder in holders])
        case "project":
            return _joined([fleet.projects.get(holder.project, holder.project) for holder in holders])
        case "user":
            return _joined([fleet.users.get(holder.user, holder.user) for holder in holders])
        case "since":
            return _joined([_when(holder.server.since) for holder in holders if holder.server])
        case "state":
            part = f" ({gpu.used} of {gpu.units})" if gpu.units > 1 else ""
            reserved = ", reserved" if gpu.reserved and gpu.used else ""
            return f"{gpu.state.value}{part}{reserved}" + (f": {gpu.out_of_service}" if gpu.out_of_service else "")
        case "sources":
            return _joined([source.value for source in gpu.sources])
    value = describe(fleet, gpu)[key]
    return "-" if value is None else str(value)


def _called(holder: Holder) -> str:
    if holder.server is None:
        return holder.consumer
    return f"{holder.server.name or holder.server.id}{' (moving)' if holder.migration else ''}"


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, texts))) or "-"


def _when(moment: datetime | None) -> str:
    return f"{moment:%F %R}" if moment else ""


def group_row(fleet: Fleet, group: Group, by: str) -> tuple[object, ...]:
    """The cells of a group: name, and the columns of :data:`GROUP_COLUMNS`; None for an unknown number."""
    name: str | None = group.name or None
    if by == "project" and group.name:
        name = fleet.projects.get(group.name, group.name)
    return (
        name,
        group.total,
        group.free,
        *(group.states[state] for state in State if state is not State.FREE),
        len(group.servers),
    )

"""The rows of `gpustack gpu list`: GPUs and groups as plain data and as text. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from gpustack.base.columns import Column
from gpustack.cloud.identity import distinct
from gpustack.fleet.model import Fleet, Gpu, Holder, State
from gpustack.fleet.summary import Group


def _described(fleet: Fleet, holder: Holder) -> dict[str, object]:
    server = holder.server
    known = {"server": "id", "server_name": "name", "status": "status", "flavor": "flavor"}
    of_server = {key: getattr(server, name) or None if server else None for key, name in known.items()}
    return {
        "consumer": holder.consumer,
        **of_server,
        "project": holder.project or None,
        "project_name": fleet.projects.get(holder.project),
        "user": holder.user or None,
        "user_name": fleet.users.get(holder.user),
        "since": f"{server.since:%FT%TZ}" if server and server.since else None,
        "migration": holder.migration,
        "amount": holder.amount,
    }


def _state(gpu: Gpu) -> str:
    part = f" ({gpu.used} of {gpu.units})" if gpu.units > 1 else ""
    reserved = ", reserved" if gpu.reserved and gpu.used else ""
    return f"{gpu.state.value}{part}{reserved}" + (f": {gpu.out_of_service}" if gpu.out_of_service else "")


def _called(holder: Holder) -> str:
    if holder.server is None:
        return holder.consumer
    return f"{holder.server.name or holder.server.id}{' (moving)' if holder.migration else ''}"


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, texts))) or "-"


def group_columns(fleet: Fleet, by: str, unknown: str) -> list[Column[Group]]:
    """The columns of groups.

    :param by: ``host``, ``model`` or ``project``.
    :param unknown: the column whose numbers the sources do not have.
    """
    name = distinct(fleet.projects if by == "project" else {})

    def units(state: State) -> Column[Group]:
        return Column(state.value.capitalize(), lambda group: group.states[state], state.value.capitalize())

    shown: tuple[Column[Group], ...] = (
        Column(by.capitalize(), lambda group: name(group.name) or None, by.capitalize()),
        Column("GPUs", lambda group: group.total, "GPUs"),
        Column("Free", lambda group: group.free, "Free"),
        *(units(state) for state in State if state is not State.FREE),
        Column("Instances", lambda group: len(group.servers), "Instances"),
    )
    return [column for column in shown if column.key != unknown]


def _owner(key: str, names: Mapping[str, str]) -> Iterator[Column[Gpu]]:
    of, shown = attrgetter(key), distinct(names)

    def each(gpu: Gpu) -> str:
        return _joined([shown(of(holder)) for holder in gpu.holders])

    yield Column(key, lambda gpu: of(gpu.holder) or None if gpu.holder else None, key.capitalize(), each)
    yield Column(f"{key}_name", lambda gpu: names.get(of(gpu.holder)) if gpu.holder else None)


def columns(fleet: Fleet) -> tuple[Column[Gpu], ...]:
    """The columns of GPUs; names of projects and users are those of a fleet."""
    return (
        Column("host", lambda gpu: gpu.host or None, "Host"),
        Column("node", lambda gpu: gpu.node or None),
        Column("cell", lambda gpu: gpu.cell or None),
        Column("address", lambda gpu: gpu.address or None, "Address"),
        Column("model", lambda gpu: gpu.model or None, "Model"),
        Column("vendor_id", lambda gpu: gpu.vendor_id or None),
        Column("product_id", lambda gpu: gpu.product_id or None),
        Column("resource_class", lambda gpu: gpu.resource_class or None),
        Column("state", lambda gpu: gpu.state.value, "State", _state),
        Column(
            "server",
            lambda gpu: gpu.server.id if gpu.server else None,
            "Instance",
            lambda gpu: _joined([_called(holder) for holder in gpu.holders]),
        ),
        Column("server_name", lambda gpu: gpu.server.name or None if gpu.server else None),
        Column("status", lambda gpu: gpu.server.status or None if gpu.server else None, "Status", long=True),
        *_owner("project", fleet.projects),
        *_owner("user", fleet.users),
        Column("flavor", lambda gpu: gpu.server.flavor or None if gpu.server else None, "Flavor"),
        Column(
            "since",
            lambda gpu: f"{gpu.server.since:%FT%TZ}" if gpu.server and gpu.server.since else None,
            "Since (UTC)",
            lambda gpu: _joined([f"{h.server.since:%F %R}" for h in gpu.holders if h.server and h.server.since]),
        ),
        Column("holders", lambda gpu: [_described(fleet, entry) for entry in gpu.holders]),
        Column("units", lambda gpu: gpu.units, "Units", lambda gpu: str(gpu.units), long=True),
        Column("used", lambda gpu: gpu.used, "Used", lambda gpu: str(gpu.used), long=True),
        Column("reserved", lambda gpu: gpu.reserved),
        Column("dev_type", lambda gpu: gpu.dev_type or None),
        Column("numa_node", lambda gpu: gpu.numa_node, "NUMA", long=True),
        Column("iommu_group", lambda gpu: gpu.iommu_group),
        Column("link", lambda gpu: gpu.link or None),
        Column("provider", lambda gpu: gpu.provider or None),
        Column("service", lambda gpu: gpu.service or None, "Service", long=True),
        Column("out_of_service", lambda gpu: gpu.out_of_service or None),
        Column("sources", lambda gpu: [source.value for source in gpu.sources], "Sources", long=True),
    )

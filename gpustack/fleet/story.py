"""The fields of `gpustack gpu show`: a GPU with its card, its place in the host, its holders and history."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpustack.base.columns import described, in_words
from gpustack.base.errors import CloudError, UsageError
from gpustack.base.text import in_lines
from gpustack.cloud import Connection
from gpustack.cloud.servers import Event, actions, moves
from gpustack.fleet.model import Fleet, Gpu
from gpustack.fleet.table import columns
from gpustack.hosts.facts.gpus import Gpu as HostGpu
from gpustack.hosts.facts.gpus import assemble
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.variants import choice
from gpustack.pci import catalogue

_SHOWN = 20
_WITHOUT = ("server", "server_name", "status", "project", "project_name", "user", "user_name", "flavor", "since")


def history(cloud: Connection, server: str) -> tuple[tuple[Event, ...], str]:
    """Return the latest events of an instance, and why some are missing (empty if none is)."""
    events: list[Event] = []
    missing = ""
    for read in (actions, moves):
        try:
            events += read(cloud, server)
        except CloudError as error:
            missing = error.what
    return tuple(sorted(events, key=lambda event: event.at or datetime.min, reverse=True)[:_SHOWN]), missing  # noqa: DTZ901


def chosen(fleet: Fleet, host: str, address: str) -> Gpu:
    """Return the GPU at an address of a host.

    :raises UsageError: if the sources do not have it.
    :raises PartialError: if one of them did not answer.
    """
    here = fleet.at(host)
    if (match := next((gpu for gpu in here if gpu.address == address), None)) is not None:
        return match
    fleet.refuse_unknown(f"{host} has a GPU {address} in service")
    if here and not any(gpu.address for gpu in here):
        raise UsageError(
            f"{host}: the GPUs of this host are known by number only, not by address",
            remedy="add --config-file with the configuration of nova-api: the databases have the addresses",
        )
    known = ", ".join(gpu.address for gpu in here if gpu.address)
    remedy = f"GPUs of this host: {known}" if known else "`gpustack gpu list` shows the hosts"
    raise UsageError(f"{host} has no GPU {address} in service", remedy=remedy)


def story(fleet: Fleet, gpu: Gpu, host: Host | None, events: Sequence[Event]) -> dict[str, object]:
    """All fields of a GPU as plain data, in the order of output; unknown values are None."""
    fields = {name: value for name, value in described(columns(fleet), gpu).items() if name not in _WITHOUT}
    holders = fields.pop("holders")
    places = (gpu.place, gpu.host)
    return {
        **fields,
        **_card(gpu, host),
        **_in_host(gpu, host),
        "holders": holders,
        "history": [{**event.to_dict(), "user_name": fleet.users.get(event.user)} for event in events],
        "findings": [finding.to_dict() for finding in fleet.findings if finding.place in places],
    }


def _card(gpu: Gpu, host: Host | None) -> dict[str, object]:
    """What the catalogue has about the card, such as the drivers that it requires."""
    function = host.functions.get(gpu.address) if host else None
    subsystem = (function.subsystem_vendor, function.subsystem_product) if function else (None, None)
    card = catalogue.lookup(gpu.vendor_id, gpu.product_id, *subsystem)
    return {
        "family": card.family if card else None,
        "memory": card.memory if card else None,
        "requirements": [quirk.title for quirk in catalogue.quirks_of(card)] if card else [],
    }


def _in_host(gpu: Gpu, host: Host | None) -> dict[str, object]:
    """The card in its host, from the facts; all values are None without them."""
    function = host.functions.get(gpu.address) if host else None
    if host is None or function is None:
        return dict.fromkeys(("driver", "required_driver", "group_members", "max_link", "slot", "serial"))
    assembled: HostGpu = assemble(host, function)
    link = function.link
    members = (*assembled.companions, *assembled.neighbours, *assembled.bridges)
    return {
        "driver": function.driver,
        "required_driver": choice(host, function).module or "vfio-pci",
        "group_members": [f.address for f in members if f.iommu_group == function.iommu_group],
        "max_link": f"{link.max_speed or '?'} x{link.max_width or '?'}" if link else None,
        "slot": function.slot,
        "serial": function.serial,
    }


def shown(value: object) -> str:
    """A field for people: one line for each entry of a list."""
    entries = value if isinstance(value, list) else [in_words(value)]
    return in_lines(_entry(entry) if isinstance(entry, dict) else entry for entry in entries) or "-"


def _entry(entry: Mapping[str, object]) -> str:
    if "event" in entry:
        return _event(entry)
    return f"{entry['code']}: {entry['message']}" if "code" in entry else _holder(entry)


def _event(entry: Mapping[str, object]) -> str:
    ends = f"{entry['source']} → {entry['target']}" if entry["source"] or entry["target"] else None
    user = f"by {entry['user_name'] or entry['user']}" if entry["user"] else None
    return " ".join(str(part) for part in (entry["at"] or "unknown time", entry["event"], ends, user) if part)


def _holder(entry: Mapping[str, object]) -> str:
    titles = ("project", "user", "flavor", "status", "since")
    known = [f"{title} {value}" for title in titles if (value := entry.get(f"{title}_name") or entry[title])]
    name = entry["server_name"] or entry["server"] or "unknown consumer"
    moving = ["held by its migration"] if entry["migration"] else []
    return ", ".join([f"{name} ({entry['consumer']})", *known, *moving])

"""Read the state of one GPU: the fleet of its host, its inventory, its nova-compute, its entry in the spec."""

from collections.abc import Iterable
from dataclasses import replace

from gpustack.base.errors import UsageError
from gpustack.base.text import listed
from gpustack.changes import journal
from gpustack.changes.history import LastChange, last_change
from gpustack.changes.journal import Cloud
from gpustack.cloud import Connection, placement, session
from gpustack.cloud.closed import service_of
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Inventory
from gpustack.fleet.index import named
from gpustack.fleet.model import MDEV, Fleet, Gpu, Source, State
from gpustack.fleet.read import Given
from gpustack.hosts.facts.gpus import is_gpu
from gpustack.operate.gpu_service.plan import Seen
from gpustack.spec.out_of_service import by_machine, entry_of

_SHOWN = 16
_WITHOUT_SERVICE = "add the GPU to out_of_service of the spec, and install its device_spec before nova-compute starts"


def look(cloud: Connection, fleet: Fleet, host: str, address: str, given: Given, *, force: bool) -> Seen:
    """Return the state of a GPU.

    :param host: the host as Nova names it, or its compute node.
    :param force: whether the operator alone knows the GPU.
    :raises UsageError: if no source has the GPU.
    :raises CloudError: if Nova or Placement cannot be reached or refuses.
    """
    here = fleet.at(host)
    gpu = _offered(here, address)
    service = _service(cloud, fleet, gpu.host if gpu else here[0].host if here else host, given)
    names = {host, service.host, *(gpu.node for gpu in here)}
    facts = named(given.hosts, names)
    function = facts.functions.get(address) if facts else None
    parent = (gpu.parent if gpu else "") or (function.physical_function if function else None)
    card = facts.functions.get(parent or address) if facts else None
    entries = by_machine(given.spec.out_of_service if given.spec else ())
    entry = entry_of(entries, names, address, card.serial if card else None) or (
        entry_of(entries, names, parent) if parent else None
    )
    # The provider of virtual functions is that of their card, which the fleet lists if there are no rows.
    counted = gpu or next((of for of in here if parent and of.address == parent), None)
    inventory = placement.inventory(cloud, counted.provider) if counted and counted.provider else None
    seen = Seen(
        host=service.host,
        address=address,
        service=service,
        gpu=gpu,
        by_address=fleet.lists_all(host) and not fleet.hides(address, (parent or address) if function else None, host),
        inventory=inventory,
        card=counted.parent or counted.address if counted and (gpu is None or gpu.dev_type == "type-VF") else "",
        scheduled=None if counted is not None and counted.dev_type == MDEV else given.models.scheduled,
        entry=entry,
        reserved_by=_record(cloud, inventory),
        one_time_use=counted is not None and placement.ONE_TIME_USE in counted.traits,
        others=sorted(of.address for of in here if of.address and of.address not in (address, parent)),
    )
    if gpu is None and entry is None and not (function and card and is_gpu(card)) and not seen.closed and not force:
        fleet.refuse_unknown(f"{service.host} has a GPU {address}", "; if you know that it has, add --force")
        known = {gpu.address for gpu in here}
        known |= {of.address for of in facts.functions.values() if is_gpu(of)} if facts else set()
        raise _unknown(service.host, address, known, _hosts(fleet, given))
    return seen


def _offered(here: Iterable[Gpu], address: str) -> Gpu | None:
    """The GPU as Nova offers it; a card whose virtual functions have rows, as its provider in Placement counts them."""
    offered = [gpu for gpu in here if gpu.sources != (Source.SNAPSHOT,)]
    parts = [gpu for gpu in offered if gpu.parent == address]
    gpu = next((gpu for gpu in offered if gpu.address == address), next(iter(parts), None))
    if gpu is None or gpu.address == address:
        return gpu
    holders, used = tuple(holder for part in parts for holder in part.holders), sum(part.used for part in parts)
    state = State.ALLOCATED if used else gpu.state
    whole = replace(gpu, address=address, parent="", dev_type="", units=len(parts))
    return replace(whole, state=state, holders=holders, used=used)


def _service(cloud: Connection, fleet: Fleet, host: str, given: Given) -> Service:
    """The service as the fleet has it, else as Nova has it."""
    if len(known := [service for service in fleet.services if service.host == host]) == 1:
        return known[0]
    try:
        return service_of(cloud, host)
    except UsageError as error:
        if fleet.at(host):
            what = f"{error.what}, only Placement has its GPUs: no instance starts there until a nova-compute does"
            raise UsageError(what, remedy=_WITHOUT_SERVICE) from error
        raise UsageError(error.what, remedy=f"hosts with GPUs: {_hosts(fleet, given)}") from error


def _unknown(host: str, address: str, present: Iterable[str], hosts: str) -> UsageError:
    known = listed(sorted(filter(None, present)), _SHOWN)
    return UsageError(
        f"no source has a GPU {address} on {host}; "
        + (f"known GPUs of this host: {known}" if known else f"no GPU of this host is known. Hosts with GPUs: {hosts}"),
        remedy="check the address; name a source that has the GPU (--snapshot, --config-file, --spec with its entry);"
        " if only you know it, add --force",
    )


def _hosts(fleet: Fleet, given: Given) -> str:
    known = {gpu.host for gpu in fleet.gpus} | {count.host for count in fleet.counts}
    known |= {host.hostname for host in given.hosts if any(map(is_gpu, host.functions.values()))}
    return listed(sorted(known), _SHOWN) or "none that a source names"


def _record(cloud: Connection, inventory: Inventory | None) -> LastChange | None:
    """Who of gpustack reserved the GPU."""
    if inventory is None or not any(inventory.reserved.values()):
        return None
    records = (record for _path, record in journal.records())
    here = Cloud(**session.place_of(cloud)).key
    return last_change(records, here, "reservation", inventory.provider, inventory.reserved)

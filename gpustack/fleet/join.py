"""Join the answers of all sources into the fleet: one entry per GPU. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key, may_be_of_one_machine, short
from gpustack.base.text import listed as names
from gpustack.cloud.closed import reasons_of
from gpustack.fleet.cards import name_of
from gpustack.fleet.disagreements import disagreements, label
from gpustack.fleet.index import Answers, Index, Row, is_missing, is_unreported, unscheduled, unscheduled_note
from gpustack.fleet.model import MDEV, Fleet, Gpu, Holder, Source, State
from gpustack.fleet.placement import Device
from gpustack.fleet.summary import host_counts
from gpustack.hosts.facts.model import Function
from gpustack.hosts.readiness.assessment import State as Readiness
from gpustack.spec.model import OutOfService
from gpustack.spec.out_of_service import by_machine, entry_of

_STATES = {"available": State.FREE, "claimed": State.CLAIMED, "allocated": State.ALLOCATED}
"""The states of rows; all others are unavailable."""
_NO_TRAITS = frozenset[str]()


def join(answers: Answers) -> Fleet:
    """Return the fleet that the answers describe."""
    index = Index(answers)
    listed = [*_of_rows(index), *_of_devices(index)]
    listed += _shares(index, {key(gpu.node) for gpu in listed})
    withheld = list(_not_offered(index, listed))
    absent = {gpu.place for gpu in withheld}
    listed += withheld
    entries = by_machine(answers.spec.out_of_service if answers.spec else ())
    listed = [_with_reason(index, gpu, entries) for gpu in listed]
    found = list(disagreements(index))
    broken = {(key(entry.node), entry.address) for entry in found if entry.breaks and entry.address}
    listed = [
        replace(
            gpu,
            state=State.INCONSISTENT
            if {(key(gpu.node), gpu.address), (key(gpu.host), gpu.address)} & broken
            else _usable(index, gpu),
            service=index.service(gpu.node or gpu.host),
        )
        for gpu in listed
    ]
    unlisted = _unlisted(index, listed)
    unmapped = sorted({gpu.host for gpu in listed if gpu.service == "unmapped"})
    fleet = Fleet(
        gpus=tuple(sorted(listed, key=lambda gpu: (gpu.host, gpu.address, gpu.holder.consumer if gpu.holder else ""))),
        servers=tuple(server for server in answers.servers or () if server.devices),
        services=answers.services or (),
        projects=answers.projects,
        users=answers.users,
        findings=(
            *(entry.finding for entry in found),
            *(
                finding(Code.GPU_NOT_OFFERED, place=gpu.place, klass=label("O"), host=gpu.host)
                for gpu in listed
                if gpu.place in absent and not gpu.out_of_service
            ),
            *_still_offered(index, listed),
            *unscheduled(index),
            *(
                finding(Code.PROJECT_DELETED, place=gpu.place, project=holder.project, server=holder.instance)
                for gpu in listed
                for holder in gpu.holders
                if holder.project in answers.deleted
            ),
            *(finding(Code.HOST_NOT_MAPPED, place=host) for host in unmapped),
        ),
        partial=answers.gaps,
        notes=tuple(_notes(index, listed, unlisted)),
        located=(answers.rows is not None or answers.devices is not None)
        and all(gpu.address for gpu in listed)
        and (answers.has_all_rows or not unlisted),
        exhaustive=answers.has_all_rows or bool(answers.models.scheduled),
    )
    findings = (*fleet.findings, *_unseen(index, fleet))
    return replace(fleet, counts=host_counts(fleet.gpus, index), findings=findings)


def unenforced(fleet: Fleet) -> tuple[Finding, ...]:
    """The findings about GPUs out of service that new instances get, or for which that is unknown."""
    codes = (Code.OUT_OF_SERVICE_OFFERED, Code.OUT_OF_SERVICE_UNSEEN)
    return tuple(entry for entry in fleet.findings if entry.code in codes)


def _usable(index: Index, gpu: Gpu) -> State:
    """The state of a GPU; one that Nova has as free is unavailable if its host has to be prepared, or can't be."""
    is_judged = gpu.state is State.FREE and gpu.address and gpu.dev_type != MDEV
    verdict = index.verdict(gpu.node, gpu.address) if is_judged else None
    is_usable = verdict is None or verdict.state in (Readiness.READY, Readiness.UNKNOWN)
    return gpu.state if is_usable else State.UNAVAILABLE


def _with_reason(index: Index, gpu: Gpu, entries: Mapping[str, list[OutOfService]]) -> Gpu:
    """A GPU with the reason of the spec for it or for its card."""
    function = index.function(gpu.node, gpu.address)
    for address in (gpu.address, gpu.parent or (function.physical_function if function else "")):
        known = index.function(gpu.node, address) if address else None
        serial = known.serial if known else None
        if address and (entry := entry_of(entries, {gpu.host, gpu.node}, address, serial)):
            return replace(gpu, out_of_service=entry.why)
    return gpu


def _still_offered(index: Index, listed: Iterable[Gpu]) -> Iterator[Finding]:
    """GPUs out of service that nothing keeps new instances off, now or when their instance ends."""
    for gpu in listed:
        withheld = gpu.reserved and (gpu.dev_type == MDEV or index.answers.models.scheduled)
        offered = gpu.state is not State.UNAVAILABLE and gpu.service != "disabled" and not withheld
        if offered and (why := gpu.out_of_service):
            place, host, address = gpu.place, gpu.host, gpu.address
            yield finding(Code.OUT_OF_SERVICE_OFFERED, place=place, reason=why, host=host, address=address)


def _unseen(index: Index, fleet: Fleet) -> Iterator[Finding]:
    """Entries of which no source shows whether Nova offers the GPU, on hosts that may be open."""
    spec, services = index.answers.spec, index.answers.services
    names_of = by_key((short(name), name) for name in {name for gpu in fleet.gpus for name in (gpu.host, gpu.node)})
    for entry in spec.out_of_service if spec else ():
        alike = (name for name in names_of.get(short(entry.host), ()) if may_be_of_one_machine({name}, {entry.host}))
        names = {entry.host, *alike}
        facts, state = index.facts(entry.host), index.service(entry.host)
        serials = {function.serial for function in facts.functions.values()} if facts else set()
        function = facts.functions.get(entry.address or "") if facts else None
        card = (function.physical_function or entry.address) if function else None
        hidden = entry.address is not None and fleet.hides(entry.address, card, *names)
        is_known = (entry.address is not None or entry.serial in serials) and not hidden
        is_absent = services is not None and fleet.complete and not state
        if state != "disabled" and not is_absent and not (is_known and fleet.lists_all(*names)):
            listed = by_machine([entry])
            if not any(_with_reason(index, gpu, listed).out_of_service for gpu in fleet.at(*names)):
                yield finding(Code.OUT_OF_SERVICE_UNSEEN, place=f"{entry.host} {entry.card}", reason=entry.why)


def _of_rows(index: Index) -> Iterator[Gpu]:
    """The GPUs of rows. A physical function whose virtual functions are offered is no GPU of its own."""
    for spot, row in index.rows.items():
        is_own = spot not in index.parents or row.status in ("claimed", "allocated")
        if is_own and index.is_gpu_row(row):
            yield _of_row(index, row, index.devices.get((key(row.node), row.parent or row.address)))


def _of_row(index: Index, row: Row, device: Device | None) -> Gpu:
    state = _STATES.get(row.status, State.UNAVAILABLE)
    holders: tuple[Holder, ...] = (index.holder(row.owner),) if row.owner else ()
    if device is not None and not row.parent:
        holders += tuple(holder for holder in index.holders(device) if holder.instance != row.owner)
    # Virtual functions are units of one provider: without capacity, none of them can be allocated.
    reserved = device is not None and device.capacity == 0
    if state is State.FREE:
        if reserved and device and (row.parent or not device.used):
            state = State.RESERVED
        elif device is None and is_missing(index, row):
            state = State.INCONSISTENT
        elif device is None and is_unreported(index, row):
            state = State.UNAVAILABLE
    function = index.function(row.node, row.address)
    sources = [Source.DATABASE, *([Source.PLACEMENT] if device else []), *([Source.SNAPSHOT] if function else [])]
    return Gpu(
        host=row.host,
        node=row.node,
        address=row.address,
        model=index.vgpu_name(row.node, row.address) or name_of(row.vendor_id, row.product_id, function),
        vendor_id=row.vendor_id,
        product_id=row.product_id,
        resource_class=device.resource_class if device else "",
        state=state,
        holders=holders,
        used=1 if state in (State.CLAIMED, State.ALLOCATED) else 0,
        reserved=reserved,
        dev_type=row.dev_type,
        numa_node=row.numa_node if row.numa_node is not None else function.numa_node if function else None,
        iommu_group=function.iommu_group if function else None,
        link=str(function.link or "") if function else "",
        cell=row.cell,
        parent=row.parent,
        provider=device.uuid if device else "",
        traits=device.traits if device else _NO_TRAITS,
        sources=tuple(sources),
    )


def _of_devices(index: Index) -> Iterator[Gpu]:
    """The GPUs that only Placement has."""
    for spot, device in index.devices.items():
        ids = index.ids(device)
        if spot not in index.rows and spot not in index.parents and index.is_gpu(device.node, device.address, ids):
            yield _of_device(index, device, ids)


def _of_device(index: Index, device: Device, ids: tuple[str, str]) -> Gpu:
    function = index.function(device.node, device.address)
    vendor, product = ids if ids[0] or function is None else (function.vendor, function.product)
    holders = index.holders(device)
    used = max(device.used, sum(holder.amount for holder in holders))  # allocated since the devices were listed
    state = State.ALLOCATED if used else State.FREE if device.capacity else State.RESERVED
    return Gpu(
        host=index.host_of(device.node),
        node=device.node,
        address=device.address,
        model=_model(index, device, (vendor, product), function) or device.resource_class,
        vendor_id=vendor,
        product_id=product,
        resource_class=device.resource_class,
        state=state,
        holders=holders,
        units=max(device.capacity, used, 1),
        used=used,
        reserved=device.capacity == 0,
        dev_type=MDEV if device.mediated else "",
        numa_node=function.numa_node if function else None,
        iommu_group=function.iommu_group if function else None,
        link=str(function.link or "") if function else "",
        provider=device.uuid,
        traits=device.traits,
        sources=(Source.PLACEMENT, *([Source.NOVA] if holders else []), *([Source.SNAPSHOT] if function else [])),
    )


def _model(index: Index, device: Device, ids: tuple[str, str], function: Function | None) -> str:
    """The type of a card's vGPUs, else the name of the card; empty if it is unknown."""
    if device.mediated:
        return index.vgpu_types(device).name
    return index.vgpu_name(device.node, device.address) or name_of(*ids, function)


def _shares(index: Index, located: set[str]) -> Iterator[Gpu]:
    """One entry for each device of instances on hosts whose GPUs no source lists; the addresses are unknown."""
    for server in index.answers.servers or ():
        consumer = (index.answers.consumers or {}).get(server.id)
        if not server.placed or key(server.place) in located or (consumer is not None and consumer.devices):
            continue
        for alias in Counter(server.devices).elements():
            yield Gpu(
                host=server.host,
                node=server.place,
                model=index.answers.models.aliases.get(alias, alias),
                state=State.ALLOCATED,
                holders=(index.holder(server.id),),
                used=1,
                sources=(Source.NOVA,),
            )


def _not_offered(index: Index, listed: list[Gpu]) -> Iterator[Gpu]:
    """GPUs that a host holds for passthrough, but that Nova does not have; only of hosts whose GPUs are listed."""
    spots = {(gpu.node, gpu.address) for gpu in listed if gpu.address}
    for host, node in sorted({(gpu.host, gpu.node) for gpu in listed if gpu.address}):
        for verdict in index.judged(node):
            gpu, main = verdict.gpu, verdict.gpu.main
            is_listed = bool({(node, address) for address in gpu.addresses} & spots)
            if verdict.state is Readiness.READY and not is_listed and main.physical_function is None:
                yield Gpu(
                    host=host,
                    node=node,
                    address=main.address,
                    model=gpu.name,
                    vendor_id=main.vendor,
                    product_id=main.product,
                    state=State.UNAVAILABLE,
                    dev_type=gpu.dev_type,
                    numa_node=main.numa_node,
                    iommu_group=main.iommu_group,
                    link=str(main.link or ""),
                    sources=(Source.SNAPSHOT,),
                )


def _unlisted(index: Index, listed: list[Gpu]) -> list[str]:
    """The hosts with a nova-compute that have GPUs by the spec or the facts, but none in the list."""
    known = {key(name) for gpu in listed for name in (gpu.host, gpu.node)}
    others = [service.host for service in index.answers.services or () if key(service.host) not in known]
    return sorted(host for host in others if index.answers.models.expects(host) or _offers(index, host))


def _offers(index: Index, host: str) -> bool:
    return any(verdict.state is Readiness.READY for verdict in index.judged(host))


def _notes(index: Index, listed: list[Gpu], unlisted: list[str]) -> Iterator[str]:
    known = {key(name) for gpu in listed for name in (gpu.host, gpu.node)}
    disabled = [entry for entry in index.answers.services or () if not entry.enabled and key(entry.host) in known]
    yield from (f"host {service.host} is closed: {reasons_of(service)}" for service in disabled)
    if shared := sorted({gpu.host for gpu in listed if not gpu.address and gpu.host}):
        silent = any(gap.source is Source.PLACEMENT for gap in index.answers.gaps)
        which = "whose devices Placement did not show" if silent else "that report no devices to Placement"
        yield (
            f"only GPUs in use are listed, without addresses, of hosts {which}:"
            f" {names(shared, 8)}; --config-file reads each GPU from Nova's databases"
        )
        if any(server.moving and server.devices for server in index.answers.servers or ()):
            yield "instances that move may have GPUs on two hosts, of which those on one are listed"
    elif index.answers.devices is None and index.answers.rows is None and not index.answers.gaps:
        yield "Placement has no devices; --config-file reads each GPU from Nova's databases"
    if unlisted:
        has = "Nova has no GPUs" if index.answers.has_all_rows else "no source lists the GPUs"
        yield f"{has} of hosts that have some by the spec or the snapshot: {names(unlisted, 8)}"
    if closed := [gpu for gpu in listed if gpu.free and gpu.cell in index.answers.disabled_cells]:
        cells = names(sorted({gpu.cell for gpu in closed}), 8)
        yield f"free GPUs in disabled cells, which no new instance gets: {len(closed)} in {cells}"
    yield from unscheduled_note(index)
    unknown = sorted(
        {gpu.resource_class for gpu in listed if gpu.resource_class and not gpu.vendor_id and gpu.dev_type != MDEV}
    )
    if unknown:
        yield f"listed as GPUs, though no source has their PCI ids: {names(unknown, 8)}; --spec or --snapshot has them"
    aliases = index.answers.models.aliases
    foreign = sorted({gpu.model for gpu in listed if not gpu.address} - set(aliases.values())) if aliases else []
    if foreign:
        yield f"listed as GPUs, though the spec does not have their aliases: {names(foreign, 8)}"
    others = {spot for spot, d in index.devices.items() if not index.is_gpu(d.node, d.address, index.ids(d))}
    others |= {spot for spot, row in index.rows.items() if not index.is_gpu_row(row)}
    if others:
        yield f"{len(others)} other PCI devices are not listed"

"""Where Nova, Placement and the hosts disagree, as findings that name the class of clean-up. Pure.

With PCI in Placement, a move may take another device than the one that Placement chose, and keep both
(``_move_claim`` in nova/compute/resource_tracker.py). So use is counted from both sides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.hostnames import key, same
from gpustack.cloud.servers import Server
from gpustack.fleet.index import Index, Row
from gpustack.fleet.placement import Device
from gpustack.hosts.facts.vgpus import unused
from gpustack.hosts.readiness.assessment import State as Readiness
from gpustack.spec.model import models_for
from gpustack.spec.verdict import Verdict

_BINDING = frozenset({Code.BOUND_TO_HOST_DRIVER, Code.BOUND_TO_NO_DRIVER, Code.GPU_NOT_YET_BOUND})
_TAKEN = ("claimed", "allocated")


def label(letter: str) -> str:
    """A class of clean-up. Its rules load SQLAlchemy, which a fleet without disagreements does not need."""
    from gpustack.repair import classes

    return classes.label(letter)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A finding about a GPU.

    :ivar node: the compute node.
    :ivar breaks: whether the GPU's state is then inconsistent.
    """

    node: str
    address: str
    finding: Finding
    breaks: bool = True


def disagreements(index: Index) -> Iterator[Disagreement]:
    """Yield everything that does not fit together."""
    answers = index.answers
    yield from _verdicts(index)
    yield from _differing_rows(index)
    # GPUs with a row in more than one cell. Which of the rows Nova uses depends on the mapping of the host.
    for rows in (rows for rows in index.all_rows.values() if len(rows) > 1):
        texts = [f"{_row_words(index, row)} in cell {row.cell}" for row in rows]
        place, host = f"{rows[0].host} {rows[0].address}", rows[0].host
        text = finding(Code.GPU_IN_SEVERAL_CELLS, place=place, rows=" and ".join(texts), host=host)
        is_certain = len({(row.status, row.owner) for row in rows}) == 1
        yield Disagreement(node=rows[0].node, address=rows[0].address, finding=text, breaks=not is_certain)
    # With rows, clean-up itself judges the allocations (classes Q and S).
    if answers.rows is None and answers.consumers is not None and answers.servers is not None:
        for server in answers.servers:
            yield from of_server(index, server)
        if answers.everything:
            yield from _strangers(index)
    yield from _facts(index)
    for device in answers.devices or ():
        yield from _of_card(index, device) if device.mediated else ()


def _verdicts(index: Index) -> Iterator[Disagreement]:
    for verdict in index.answers.verdicts:
        host, because = verdict.host, verdict.because
        place = f"{host} {verdict.address}".strip()
        text = finding(Code.GPU_OF_STALE_ROW, place=place, klass=verdict.klass, because=because, host=host)
        yield Disagreement(node=host, address=verdict.address, finding=text, breaks=not verdict.doubt)


def of_server(index: Index, server: Server) -> Iterator[Disagreement]:
    """Yield how the allocations of an instance differ from its request. A move holds both places until it ends."""
    consumer = (index.answers.consumers or {}).get(server.id)
    if consumer is None or server.moving:
        return
    vgpus = sum(count for name, count in server.devices.items() if name in server.classes)
    yield from _of_vgpus(index, server, vgpus)
    server = replace(server, devices={name: n for name, n in server.devices.items() if name not in server.classes})
    devices = sorted((index.by_uuid[uuid] for uuid in consumer.devices if uuid in index.by_uuid), key=lambda d: d.name)
    held = [(device, consumer.devices[device.uuid]) for device in devices if not device.mediated]
    here = [(device, amount) for device, amount in held if same(device.node, server.place)]
    for device, _amount in held:
        if not same(device.node, server.place):
            yield _at(index, device, Code.ALLOCATION_ON_OTHER_HOST, "Q", server, now=server.host or "no host")
    amount = sum(amount for _device, amount in here)
    if amount > server.count:
        addresses = ", ".join(device.address for device, _amount in here)
        for device, _amount in here:
            yield _at(index, device, Code.PHANTOM_ALLOCATION, "S", server, held=amount, addresses=addresses)
    if amount < server.count and key(server.place) in index.reporting and server.status != "ERROR":
        yield from _missing(index, server, amount)


def _of_vgpus(index: Index, server: Server, requested: int) -> Iterator[Disagreement]:
    """An instance whose allocations of vGPUs are not those of its flavor, or on another host."""
    held = (index.answers.consumers or {})[server.id].devices
    devices = [index.by_uuid[uuid] for uuid in sorted(held) if uuid in index.by_uuid and index.by_uuid[uuid].mediated]
    here = sum(held[device.uuid] for device in devices if same(device.node, server.place))
    total = sum(held[device.uuid] for device in devices)
    if (here, total) == (requested, requested) or (total == 0 and server.status == "ERROR"):
        return
    text = ", ".join(f"{held[device.uuid]} of {device.name}" for device in devices) or "none"
    yield _vgpus_differ(index, devices, _words(server), server.id, requested, server.host or "no host", text)


def _vgpus_differ(
    index: Index, devices: Sequence[Device], owner: str, uuid: str, requested: int, now: str, held: str
) -> Disagreement:
    device = devices[0] if devices else None
    place = f"{index.host_of(device.node)} {device.address}" if device else now
    values: dict[str, Any] = {"server": owner, "server_id": uuid, "requested": requested, "now": now, "held": held}
    text = finding(Code.VGPU_ALLOCATION_DIFFERS, place=place, **values)
    return Disagreement(node=device.node if device else now, address="", finding=text, breaks=False)


def _missing(index: Index, server: Server, held: int) -> Iterator[Disagreement]:
    """An instance with too few allocations uses GPUs of its host that Placement has as free: any of them."""
    devices = (d for d in index.reporting.get(key(server.place), ()) if d.used < d.capacity and not d.mediated)
    free = [d.address for d in devices if index.is_gpu(d.node, d.address, index.ids(d))]
    for address in free or [""]:
        text = _of_request(Code.ALLOCATION_MISSING, server.host, address, server, "Q", held=held)
        yield Disagreement(node=server.place, address=address, finding=text)


def _at(index: Index, device: Device, code: Code, klass: str, server: Server, **values: str | int) -> Disagreement:
    host = index.host_of(device.node)
    text = _of_request(code, host, device.address, server, klass, **values)
    return Disagreement(node=device.node, address=device.address, finding=text)


def _of_request(code: Code, host: str, address: str, server: Server, klass: str, **values: str | int) -> Finding:
    """A finding about an instance whose allocations are not what it requested."""
    known: dict[str, Any] = {"server": _words(server), "requested": server.count, "klass": label(klass), **values}
    return finding(code, place=f"{host} {address}".strip(), host=host, **known)


def _words(server: Server) -> str:
    return f"{server.name} ({server.id})" if server.name else server.id


def _strangers(index: Index) -> Iterator[Disagreement]:
    """Consumers that are neither an instance nor the migration of one that moves."""
    for uuid, consumers in index.answers.strangers.items():
        device = index.by_uuid[uuid]
        for consumer in sorted(consumers):
            holder = index.holder(consumer)
            if holder.server is not None and holder.server.moving:
                continue
            owner, host = f"{'migration' if holder.migration else 'consumer'} {consumer}", index.host_of(device.node)
            if device.mediated:
                yield _vgpus_differ(index, [device], owner, consumer, 0, "no host", device.name)
                continue
            place = f"{host} {device.address}"
            text = finding(Code.ALLOCATION_OF_STRANGER, place=place, consumer=owner, klass=label("Q"), host=host)
            yield Disagreement(node=device.node, address=device.address, finding=text)


def _facts(index: Index) -> Iterator[Disagreement]:
    """Compare devices and rows with the facts of hosts."""
    answers = index.answers
    offered: list[tuple[str, str, tuple[str, str], bool]] = [
        (row.node, row.address, (row.vendor_id, row.product_id), row.dev_type == "type-VF")
        for row in answers.rows or ()
    ]
    offered += [
        (device.node, device.address, index.ids(device), False)
        for spot, device in index.devices.items()
        if spot not in index.rows and not device.mediated
    ]
    for node, address, ids, virtual in offered:
        if (host := index.facts(node)) is None:
            continue
        name, function = index.host_of(node), host.functions.get(address)
        # A device of Placement is a function, or stands for the virtual functions of a physical one.
        parts = host.virtual.get(address, ())
        if function is None or (ids != ("", "") and ids not in {(f.vendor, f.product) for f in (function, *parts)}):
            present = f"the host has {function.ids} there" if function else "the host has no device there"
            expected = ":".join(filter(None, ids)) or "a device"
            place, klass = f"{name} {address}", label("O")
            text = finding(
                Code.GPU_NOT_ON_HOST, place=place, klass=klass, host=name, present=present, expected=expected
            )
            yield Disagreement(node=node, address=address, finding=text)
        elif not virtual and index.is_gpu(node, address, ids) and (verdict := index.verdict(node, address)):
            for text in _reasons(verdict, f"{name} {address}", function.driver):
                yield Disagreement(node=node, address=address, finding=text, breaks=False)


def _of_card(index: Index, device: Device) -> Iterator[Disagreement]:
    """Compare a card with vGPUs with the spec and with the facts of its host."""
    types, host, name = index.vgpu_types(device), index.facts(device.node), index.host_of(device.node)
    function, spec = index.function(device.node, device.address), index.answers.spec

    def found(code: Code, *, breaks: bool = False, **values: object) -> Disagreement:
        severity = Severity.INFO if types.surplus and code is Code.VGPU_PROVIDER_LEFT else None
        text = finding(code, place=f"{name} {device.address}", severity=severity, host=name, **values)
        return Disagreement(node=device.node, address=device.address, finding=text, breaks=breaks)

    twin = index.devices[key(device.node), device.address]
    if twin is not device:
        yield found(Code.CARD_IN_PLACEMENT_TWICE, first=twin.name, second=device.name, breaks=True)
    excluded = spec is not None and bool(models_for(spec, name)) and not types.wanted
    if host is not None and (function is None or function.vgpu_framework != "mdev" or excluded) and device.capacity:
        reason = "the host has no device there" if function is None else "the driver of the card creates no vGPUs"
        if function is not None and function.vgpu_framework == "mdev":
            reason = "the spec wants no vGPUs of the card, or its driver has none of the type"
        if types.surplus:
            reason = "other virtual functions of the card have room for all its vGPUs"
        yield found(
            Code.VGPU_PROVIDER_LEFT,
            reason=reason,
            units=device.capacity,
            klass=device.resource_class,
            used=device.used,
            provider=device.uuid,
            breaks=True,
        )
    elif types.wanted and types.present - types.wanted:
        present = f"the host has devices of the type {' and '.join(sorted(types.present))}"
        yield found(Code.VGPU_TYPE_DIFFERS, wanted=" or ".join(sorted(types.wanted)), present=present)
    elif len(types.classes) == 1 and device.resource_class not in types.classes:
        present = f"Placement has the class {device.resource_class}"
        yield found(Code.VGPU_TYPE_DIFFERS, wanted=min(types.classes), present=present)
    devices = function.mediated_devices if function else ()
    if function is not None and len(devices) < device.used:
        holders = [_words(h.server) if h.server else h.consumer for h in index.holders(device)]
        yield found(
            Code.VGPU_DEVICE_MISSING, used=device.used, devices=len(devices), holders=", ".join(holders) or "not read"
        )
    elif host is not None and function is not None and len(devices) > device.used and (idle := unused(host, function)):
        yield found(Code.VGPU_DEVICE_UNUSED, devices=len(devices), used=device.used, uuids=", ".join(idle))


def _reasons(verdict: Verdict, place: str, driver: str | None) -> Iterator[Finding]:
    """Why an instance can't use a GPU that Nova offers."""
    if verdict.state is Readiness.PREPARABLE and _BINDING & {reason.code for reason in verdict.readiness.reasons}:
        yield finding(Code.OFFERED_GPU_ON_HOST_DRIVER, place=place, driver=driver or "none")
    elif verdict.state is not Readiness.READY:
        yield from (replace(reason, severity=Severity.WARNING) for reason in verdict.readiness.reasons)


def _differing_rows(index: Index) -> Iterator[Disagreement]:
    """Rows that differ from their allocation, unless clean-up has a verdict on the GPU."""
    judged = {(key(verdict.host), verdict.address) for verdict in index.answers.verdicts if not verdict.doubt}
    for spot, row in index.rows.items():
        device = index.devices.get(spot) if spot not in index.parents else None
        if device is None or (key(row.host), row.address) in judged or not _contradicts(index, row, device):
            continue
        holders = [_words(holder.server) if holder.server else holder.consumer for holder in index.holders(device)]
        letter = "S" if _is_phantom(index, row, device) else "Q"
        text = finding(
            Code.ROW_DIFFERS_FROM_ALLOCATION,
            place=f"{row.host} {row.address}",
            row=_row_words(index, row),
            placement=f"an allocation of {' and '.join(holders)}" if holders else "no allocation",
            klass=label(letter),
            letter=letter,
            host=row.host,
        )
        yield Disagreement(node=row.node, address=row.address, finding=text)


def _row_words(index: Index, row: Row) -> str:
    owner = index.servers.get(row.owner)
    return f"{row.status}{f' to {_words(owner) if owner else row.owner}' if row.owner else ''}"


def _is_phantom(index: Index, row: Row, device: Device) -> bool:
    """Whether Placement has allocated a free device to an instance that has all its devices on the host besides."""
    holders = [holder.server for holder in index.holders(device) if holder.server]
    if row.owner or len(holders) != 1:
        return False
    return index.owned[holders[0].id, key(row.node)] == holders[0].count


def _contradicts(index: Index, row: Row, device: Device) -> bool:
    """Whether a row and its device in Placement name different owners, or only one of them has an owner."""
    if index.answers.consumers is None or device.capacity > 1:
        return False
    owner = index.servers.get(row.owner)
    if owner is not None and owner.moving:
        return False
    holders = index.holders(device)
    if device.used and not holders:
        return False  # nobody was asked who holds it
    instances = {holder.instance for holder in holders}
    return instances != ({row.owner} if row.status in _TAKEN and row.owner else set())

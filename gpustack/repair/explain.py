"""Show everything that Nova's tables, Placement and the hypervisors hold about one GPU or one instance, in any state.

Values are shown as stored, even if inconsistent. It is the first step of a diagnosis.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.base.hostnames import same
from gpustack.base.text import counted, quoted
from gpustack.cloud import Connection, placement
from gpustack.novadb import tables
from gpustack.novadb.as_stored import Record, stored_records
from gpustack.novadb.read import now
from gpustack.novadb.requests import parse_requests
from gpustack.novadb.sources import Cell, Sources
from gpustack.repair import plan
from gpustack.repair.classes import COMPARED
from gpustack.repair.hypervisor import Ask, Usage
from gpustack.repair.permission import misnamed
from gpustack.repair.plan import Selection
from gpustack.repair.questions import names
from gpustack.repair.show import heading
from gpustack.repair.verdict import Verdict

_MOVES = 10
"""The number of an instance's migrations that are shown, latest first."""


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    lines: tuple[str, ...]


@dataclass(kw_only=True)
class Subject:
    """One GPU or one instance, and the objects that turn out to belong to it.

    :ivar host: the host of the GPU; empty for an instance.
    :ivar address: the address of the GPU; empty for an instance.
    :ivar instances: uuids of instances.
    :ivar hosts: the hosts to ask.
    """

    host: str = ""
    address: str = ""
    instances: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """Uuids of compute nodes; their resource providers have the same uuids."""
    moves: set[str] = field(default_factory=set)
    """Uuids of migrations, which are consumers in Placement too."""


def explain(
    sources: Sources, selection: Selection, subject: Subject, ask: Ask, cloud: Connection | None = None
) -> Iterator[Section]:
    """Yield the sections, databases first: they show which hosts to ask.

    :raises DatabaseError: if no cell can be read.
    """
    subject.hosts |= {subject.host} - {""}
    for cell in sources.with_hosts:
        try:
            yield Section(title=f"cell {cell.name}", lines=tuple(_cell(cell, subject)))
        except DatabaseError as error:
            yield Section(title=f"cell {cell.name}", lines=(f"could not be read: {error.what}",))
    answers = {host: ask(host) for host in sorted(subject.hosts)}
    for host, usage in answers.items():
        yield Section(title=f"hypervisor of {host}", lines=tuple(_hypervisor(usage, subject, host)))
    try:
        held = tuple(_placement(cloud, subject)) if cloud else ("not asked (--os-cloud names its cloud)",)
    except CloudError as error:
        held = (f"could not be asked: {error.what}",)
    yield Section(title="Placement", lines=held or ("nothing",))
    known = {host: usage for host, usage in answers.items() if usage.users or not usage.gap}
    looked = replace(selection, hosts=frozenset(subject.hosts), instance=None, classes=frozenset())
    cleanup_plan = plan.make(sources, looked, cloud, known)
    lines = [line for verdict in cleanup_plan.verdicts if _about(verdict, subject) for line in _verdict(verdict)]
    yield Section(title="verdicts", lines=tuple(lines) or ("none: nothing is wrong, as far as it can be seen",))


# --- databases --------------------------------------------------------------------------------------------------------


def _cell(cell: Cell, subject: Subject) -> Iterator[str]:
    with stored_records(cell) as stored:
        own = bool(subject.host)
        rows = stored.devices_at(subject.host, subject.address) if own else stored.devices_of(subject.instances)
        subject.instances |= {str(row["instance_uuid"]).lower() for row in rows if row["instance_uuid"]}
        instances = list(stored.of(tables.instances, "uuid", subject.instances))
        moves = list(stored.of(tables.migrations, "instance_uuid", subject.instances))
        for move in moves:
            subject.hosts |= _texts(move["source_compute"], move["dest_compute"])
            subject.moves |= _texts(move.get("uuid"))
        subject.hosts |= _texts(*(record["host"] for record in (*instances, *rows)))
        for node in stored.of(tables.compute_nodes, "host", subject.hosts):
            subject.nodes |= set() if node["deleted"] else _texts(node["uuid"])
            yield f"compute node {node['id']}, {node['host']} ({node['hypervisor_hostname']}){_gone(node)}"
        for service in stored.of(tables.services, "host", subject.hosts):
            if service["binary"] == "nova-compute":
                marks = [name.replace("_", " ") for name in ("disabled", "forced_down") if service.get(name)]
                report = f"last seen {service.get('last_seen_up')}{_gone(service)}"
                yield ", ".join([f"nova-compute on {service['host']}", *marks, report])
        yield from map(_row, rows)
        if not rows:
            yield "no row of pci_devices" + ("" if subject.nodes or not own else f", no compute node of {subject.host}")
        for instance in instances:
            location = f"{instance['host'] or 'no host'} ({instance['node'] or 'no node'})"
            state = f"{instance['vm_state']}, task {instance['task_state'] or 'none'}, on {location}"
            yield f"instance {instance['uuid']}: {state}, written {instance['updated_at']}{_gone(instance)}"
        for extra in stored.of(tables.instance_extra, "instance_uuid", subject.instances):
            yield f"requests of {extra['instance_uuid']}: {_requests(extra['pci_requests'])}"
        for move in sorted(moves, key=lambda migration: -migration["id"])[:_MOVES]:
            ends = f"{move['source_compute']} to {move['dest_compute']}"
            text = f"migration {move['id']} of {move['instance_uuid']} ({move.get('migration_type')}, {ends})"
            yield f"{text}: {move['status']}, written {move['updated_at'] or move['created_at']}{_gone(move)}"
        if len(moves) > _MOVES:
            yield f"and {counted(len(moves) - _MOVES, 'older migration')}"
        yield f"the database's time: {now(stored.connection):%F %T}"


def _texts(*values: object) -> set[str]:
    return {value for value in values if value and isinstance(value, str)}


def _row(row: Record) -> str:
    owner = f"owner {row['instance_uuid']}, request {row['request_id']}" if row["instance_uuid"] else "no owner"
    node = f" (compute node {row['compute_node_id']} is deleted)" if row["node_deleted"] else ""
    text = f"row {row['id']} of {row['host']}{node}: {row['address']} ({row['vendor_id']}:{row['product_id']})"
    written = row["updated_at"] or row["created_at"]
    return f"{text}, {row['dev_type']}, is {row['status']!r}, {owner}, written {written}{_gone(row)}"


def _requests(text: str | None) -> str:
    if (requests := parse_requests(text).requests) is None:
        return f"not readable: {(text or '')[:80]!r}"
    texts = (f"{request.count} of {request.alias_name} ({request.request_id})" for request in requests)
    return ", ".join(texts) or "none"


def _gone(row: Any) -> str:  # noqa: ANN401 - a row, or its dictionary
    if row["deleted"] is None:
        return "; deleted is NULL: Nova does not see it"
    return f"; soft-deleted {row['deleted_at']}" if row["deleted"] else ""


# --- the others -------------------------------------------------------------------------------------------------------


def _hypervisor(usage: Usage, subject: Subject, host: str) -> Iterator[str]:
    if stranger := misnamed(usage, host, names(host, None)):
        yield stranger
    if usage.gap:
        yield f"could not be asked, or not about everything: {usage.gap}"
    if same(host, subject.host):
        users = usage.users.get(subject.address, frozenset())
        model = usage.functions.get(subject.address)
        text = f"{subject.address} is {model}" if model else f"there is no function {subject.address}"
        yield text if model or not usage.gap else f"whether there is {subject.address} is not known"
        if users:
            yield f"in use by {', '.join(sorted(user or 'an unknown process' for user in users))}"
        elif not usage.gap:
            yield "no domain uses it"
    for uuid in sorted(subject.instances):
        if held := sorted(address for address, users in usage.users.items() if uuid in users):
            yield f"the domain of {uuid} uses {', '.join(held)}"
        elif not usage.gap:
            yield f"no running domain of {uuid} has a device"


def _placement(cloud: Connection, subject: Subject) -> Iterator[str]:
    if subject.host:
        for device in placement.providers(cloud, sorted(subject.nodes)):
            if device.address == subject.address:
                stock = placement.inventory(cloud, device.uuid)
                amounts = [
                    f"{name}: {fields['total']}, reserved {fields['reserved']}"
                    for name, fields in sorted(stock.classes.items() if stock else ())
                ]
                held = [f"{amount} by {consumer}" for consumer, amount in sorted(device.held.items())]
                yield f"provider {device.uuid} ({device.name}): {'; '.join(amounts) or 'no inventory'}"
                yield f"allocated: {', '.join(held) or 'nothing'}{'; ' + device.unread if device.unread else ''}"
    for consumer in sorted(subject.instances | subject.moves):
        held = placement.allocations_of(cloud, consumer)["allocations"]
        kind = "migration" if consumer in subject.moves else "instance"
        amounts = [
            f"{', '.join(f'{count} {name}' for name, count in sorted(allocation['resources'].items()))} of {provider}"
            for provider, allocation in sorted(held.items())
        ]
        yield f"{kind} {consumer} has {'; '.join(amounts) or 'nothing'}"


def _about(verdict: Verdict, subject: Subject) -> bool:
    if not subject.host or (verdict.host and not same(verdict.host, subject.host)):
        return (verdict.owner or "") in subject.instances
    addresses = {row.address.lower() for row in verdict.rows}
    addresses |= set(verdict.allocation.addresses.split()) if verdict.allocation else set()
    return subject.address in addresses or not addresses


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield f"{heading(verdict.to_dict())}: {verdict.because}"
    repair = f"gpustack cleanup apply --host {quoted(verdict.host)} --class {quoted(verdict.klass)} "
    repair += COMPARED.get(verdict.klass, "")
    yield from (f"  → {text.rstrip()}" for text in (verdict.repair and repair, verdict.advice) if text)

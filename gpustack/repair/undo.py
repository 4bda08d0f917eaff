"""Undo a repair that a journal records, if its devices have not been used since.

More than the row is checked. A restored row must not name a deleted or moved instance, must not be written under a
running nova-compute, and must not contradict later claims of other instances.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gpustack.base.errors import JournalError
from gpustack.base.text import counted, quoted
from gpustack.changes.change import Begin, ChangeResult, Ended
from gpustack.novadb import tables
from gpustack.novadb.model import PciRow
from gpustack.novadb.read import ROW, reading
from gpustack.novadb.sources import Cell, Sources
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair import repair
from gpustack.repair.allocation_removal import put_back
from gpustack.repair.apply import committed, whole_row, writing
from gpustack.repair.evidence import in_flight, place_words, renamed
from gpustack.repair.journal import JournalEntry
from gpustack.repair.outcome import Repairing, skipped
from gpustack.repair.plan import Selection
from gpustack.repair.repair import Change, Conditions, around, conditions
from gpustack.repair.verdict import HeldDevice, NotIn, Origin, Repair, Seen


def undo_repair(entry: JournalEntry, api: Repairing, begin: Begin | None) -> Ended:
    """Undo a repair in one transaction.

    :param begin: records that the undo begins; None to find out only what would be restored.
    :raises CloudError: if Placement cannot be reached or refuses.
    :raises DatabaseError: if a database cannot be read or written.
    :raises JournalError: if the entry is damaged.
    """
    if (cell := _cell_of(entry, api.sources.cells)) is None:
        return skipped(
            f"the repair was made in cell {entry.cell}, which is not among the named databases: name the --config-file "
            "or --db-url that it was made with; nothing was restored"
        )
    try:
        if entry.allocation is not None:
            if api.cloud is None:
                raise JournalError("the repair was made in Placement", remedy="name its cloud with --os-cloud")
            if objections := list(_against_rows(entry, cell, api.sources)):
                return _refused(objections)
            return put_back(api.cloud, entry, begin)
        return _undo_rows(entry, cell, api.sources, begin)
    except (KeyError, TypeError, AttributeError) as error:
        raise JournalError(f"the verdict of a repair is damaged: {error}") from error


def _refused(objections: Iterable[str]) -> Ended:
    """Return the end of an undo whose rows, their owner or their host changed since, or may have."""
    return skipped(f"{'; '.join(objections)}; nothing was restored")


def _against_rows(entry: JournalEntry, cell: Cell, sources: Sources) -> Iterator[str]:
    """Yield an objection if rows give the device to another instance since: nova-compute has yet to allocate it.

    Placement refuses what it has allocated itself (:func:`put_back`).
    """
    verdict, known = entry.verdict, entry.allocation or {}
    addresses = set(verdict["allocation"]["addresses"].split())
    users = entry.origin.users if entry.origin else ()
    amount = sum(known["before"]["allocations"][known["provider"]]["resources"].values())
    with reading(sources, cell, Selection(hosts=frozenset({verdict["host"]}))) as (reader, _clock):
        if doubt := reader.identity.of(verdict["host"]):
            yield doubt
        for view in reader.views(frozenset({verdict["host"]})):
            if view.node.deleted or view.node.hypervisor_hostname != verdict["node"]:
                continue
            family = [row for row in view.rows if row.live and row.address.lower() in addresses]
            functions = [row for row in family if row.parent_addr] or family
            taken = [row for row in functions if row.taken and row.instance_uuid not in users]
            if len(functions) - len(taken) < amount:
                words = (f"{row.address} {repair.use(row)}" for row in taken)
                yield "; ".join(words) or f"{verdict['host']} has no row of {' '.join(sorted(addresses))}"
            return
        yield f"no compute node {verdict['node']} of host {verdict['host']} is found"


def _cell_of(entry: JournalEntry, cells: Iterable[Cell]) -> Cell | None:
    # Compare uuids: a cell may have been renamed, or share its name with a new cell.
    fits = (cell for cell in cells if cell.uuid == entry.database and (cell.uuid or cell.name == entry.cell))
    return next(fits, None)


def _undo_rows(entry: JournalEntry, cell: Cell, sources: Sources, begin: Begin | None) -> Ended:
    with writing(cell.database) as connection:
        present = [whole_row(connection, change) or {} for change in entry.changes]
    rows = list(zip(entry.changes, entry.before, present, strict=True))
    if all({name: before[name] for name in change.new}.items() <= row.items() for change, before, row in rows):
        return Ended(ChangeResult.UNCHANGED, "the rows are as they were before the repair")
    if other := next(filter(None, (change.other_row(before, row) for change, before, row in rows)), ""):
        return _refused([other])
    facts_read, objections = _present(entry, cell, sources)
    if objections:
        return _refused(objections)
    with writing(cell.database) as connection:
        facts = conditions(facts_read, connection, entry.written)
        if begin is not None:
            begin({"rows": [f"{change.table} {change.id}" for change in entry.changes]})
        for change, before, _ in reversed(rows):
            if _restored(connection, change, before, facts, check=begin is None) != 1:
                return _refused([f"{change.table} {change.id}, or its owner or host, was written"])
        if begin is None:
            return Ended(ChangeResult.DONE, f"would be restored: {counted(len(rows), 'row')} as before the repair")
        commit = committed(connection, cell.database, entry.changes, entry.before, undone=True)
    if commit.result is ChangeResult.DONE:
        return Ended(ChangeResult.DONE, "the rows are as they were before the repair")
    if commit.result is ChangeResult.FAILED:
        return Ended(ChangeResult.FAILED, f"{commit.detail}; nothing was restored")
    return commit


def _restored(
    connection: sa.Connection, change: Change, before: Mapping[str, Any], facts: Conditions, *, check: bool
) -> int:
    """Restore a row, or check only whether its statement would; return the number of rows."""
    if check:
        table = tables.metadata.tables[change.table]
        query = sa.select(sa.func.count()).select_from(table).where(*change.as_left(before, facts))
        return int(connection.execute(query).scalar_one())
    try:
        return connection.execute(change.reversal(before, facts)).rowcount
    except IntegrityError:  # a new row has replaced the soft-deleted one
        return 0


def _present(entry: JournalEntry, cell: Cell, sources: Sources) -> tuple[tuple[Seen, ...], list[str]]:
    """Return the facts that must hold while the repair is undone, and the objections to undoing it."""
    verdict = entry.verdict
    hosts = frozenset({verdict["host"]}) if verdict["host"] else None
    selection = Selection(service_down_time=sources.service_down_time, hosts=hosts)
    before = [PciRow.of(map(row.get, PciRow._fields)) for row in entry.before if "address" in row]
    beside = entry.origin.beside if entry.origin else {}
    nodes = {row.compute_node_id for row in before}
    devices = {device["id"] for device in verdict["devices"]}  # a repair may write only the migration that holds them
    uuids = {str(uuid).lower() for uuid in (verdict["instance"], *(row.instance_uuid for row in before)) if uuid}
    facts: list[Seen] = []
    objections: list[str] = []
    with reading(sources, cell, selection) as (reader, clock):
        owners = [reader.owner(uuid) for uuid in sorted(uuids)]
        objections += filter(None, [reader.identity.of(verdict["host"] or "")])
        objections += _against_migrations(entry, reader.connection)
        objections += (text for owner in owners for text in _against_place(owner, entry, cell))
        for view in reader.views(hosts):
            if view.node.id in nodes or (not nodes and view.node.hypervisor_hostname == verdict["node"]):
                facts += around(view, [*before, *(row for row in view.rows if row.id in devices)], owners, clock)
                facts += _address_is_free(before)
                objections += _against_node(view, entry)
                objections += _against_host(view, clock, verdict) if before else ()
                objections += (text for owner in owners for text in _against_owner(view, owner, verdict))
                objections += (text for row in before if row.live for text in _against_relatives(view, row, beside))
    if not facts:
        of_host = f" {verdict['node']} of host {verdict['host']}" if verdict["host"] else " of the rows"
        objections.append(f"no compute node{of_host} is found")
    facts += map(repair.as_read, _held(entry))
    return tuple(facts), list(dict.fromkeys(objections))


def _against_host(view: NodeView, clock: Clock, verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield an objection if nova-compute was not up at the repair and is, or may be, now.

    It holds the freed rows in its memory and offers the devices.
    """
    state = view.host_state(clock)
    if state in (HostState.UP, HostState.UNKNOWN) and verdict["host_state"] != HostState.UP:
        why = f" ({clock.doubt})" if clock.doubt else ""
        yield f"nova-compute on {verdict['host']} was {verdict['host_state']} at the repair, and is {state} now{why}"


def _against_node(view: NodeView, entry: JournalEntry) -> Iterator[str]:
    """Yield an objection if the compute node is not the one of the repair, or was deleted since.

    Another uuid shows another database: an exchanged connection. In a journal of an older gpustack, the uuids of the
    rows have to show that.
    """
    origin, node = entry.origin, view.node
    if origin is None:
        if not all(row.get("uuid") for row in entry.before):
            yield "the journal is of an older gpustack, and nothing in it proves that this is the same database"
        was_deleted = entry.verdict["host_state"] == HostState.GONE
    else:
        was_deleted = origin.node_deleted
        if (node.id, node.uuid) != (origin.node_id, origin.node_uuid):
            yield (
                f"compute node {node.name} has id {node.id} and uuid {node.uuid}, not {origin.node_id} and "
                f"{origin.node_uuid}: this is another database, or the host was added again"
            )
    if node.deleted and not was_deleted:
        yield f"compute node {node.name} was deleted since"
    live = {row.address: row for row in view.rows if row.live}
    for row in entry.before:
        other = live.get(str(row.get("address", "")))
        if other is not None and row.get("deleted") == 0 and other.id != row["id"]:
            yield f"row {other.id} is the row of {other.address} by now"


def _address_is_free(before: Sequence[PciRow]) -> Iterator[Seen]:
    """Yield the facts that no other live row has the address of a row that is live after undo."""
    for row in before:
        if row.live:
            match = {"compute_node_id": row.compute_node_id, "address": row.address, "deleted": 0}
            yield Seen.of("pci_devices", {**match, "id": NotIn(frozenset({row.id}))}, 0)


def _against_place(owner: Owner, entry: JournalEntry, cell: Cell) -> Iterator[str]:
    """Yield an objection unless the owner is the same instance, alive and in the same place, or still absent."""
    origin, instance = entry.origin, owner.instance
    absent = entry.verdict["class"] == "E" if origin is None else origin.owner is None
    # The repair has read all cells, and a restored row offers its device to nobody. So a cell that can't be read now
    # matters only if it may be the owner's: the wrong repair of a device in use can't wait for other cells.
    may_be_there = origin is None or not (absent or owner.alive)
    yield from filter(None, [owner.unknown_because if may_be_there else owner.unknown_even_so])
    if absent and owner.alive:
        yield f"instance {owner.uuid} did not exist at the repair, and exists now"
    elif not absent and not owner.alive:
        yield f"instance {owner.uuid} was deleted since: its row would be a leak"
    elif not absent and instance is not None:
        place = place_words(instance)
        if origin is None and not any(place in str(line) for line in entry.verdict["evidence"]):
            yield f"instance {owner.uuid} is {place} by now, and the journal does not name that place"
        elif origin is not None and origin.owner != Origin.place(instance, cell.name):
            yield f"instance {owner.uuid} is {place} by now"


def _against_owner(view: NodeView, owner: Owner, verdict: Mapping[str, Any]) -> Iterator[str]:
    beside = verdict["stop_service"] or verdict["repair"] == Repair.CLEAR_DELETED  # as it was at the repair
    if renamed(view, owner) and not beside:
        yield f"instance {owner.uuid} is on {verdict['host']} by now, with devices of its own"
    yield from in_flight(owner)


def _against_relatives(view: NodeView, before: PciRow, beside: Mapping[str, str | None]) -> Iterator[str]:
    """Yield objections from related functions: a physical and a virtual function of it cannot have different users.

    :param beside: the users that they had at the repair all the same, by address.
    """
    for row in filter(lambda relative: relative.taken, view.relatives(before)):
        if before.status == "available":
            yield f"{row.address} {repair.use(row)}, and {before.address} would be offered"
        known = row.instance_uuid == before.instance_uuid or (row.address, row.instance_uuid) in beside.items()
        if before.taken and not known:
            yield f"{row.address}, a function of the same device, {repair.use(row)}"


def _held(entry: JournalEntry) -> list[HeldDevice]:
    """Return the devices that the entry's migrations held, without those whose rows the repair itself wrote."""
    written = entry.written.get("pci_devices", set())
    return [device for device in entry.held or () if device.id not in written]


def _against_migrations(entry: JournalEntry, connection: sa.Connection) -> Iterator[str]:
    """Yield objections to the old status of migrations: somebody may have freed their devices, on either host."""
    moves = ", ".join(str(change.id) for change in entry.changes if change.table == "migrations")
    if moves and entry.held is None:  # nothing proves that the other host's devices are as they were
        yield (
            f"migration {moves}: the journal is of an older gpustack and does not record the devices on both hosts; "
            f"run gpustack cleanup explain {quoted(entry.verdict['instance'])} to see their rows"
        )
    query = sa.select(*ROW).where(tables.pci_devices.c.id.in_([device.id for device in _held(entry)]))
    yield from repair.objections(_held(entry), {row.id: PciRow.of(row) for row in connection.execute(query)})

"""Carry a repair out: judge again, ask its hosts, record it, and make its changes in one guarded transaction.

:mod:`gpustack.repair.permission` decides what the answers of the hosts permit.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from gpustack.base.by_key import by_key
from gpustack.base.errors import DatabaseError
from gpustack.changes.change import Begin, ChangeResult, Ended
from gpustack.novadb import databases, tables
from gpustack.novadb.databases import BusyError, Database, connected, engine, errors_of, snapshot, unreachable
from gpustack.novadb.model import PciRow
from gpustack.novadb.owners import spellings
from gpustack.novadb.read import ROW
from gpustack.novadb.sources import Cell, Sources
from gpustack.repair import permission
from gpustack.repair.allocation_removal import unset
from gpustack.repair.journal import payload
from gpustack.repair.outcome import GONE, Repairing, about, key, refused, skipped
from gpustack.repair.plan import verdicts_of
from gpustack.repair.repair import Change, changes, conditions
from gpustack.repair.verdict import PlannedVerdict, Repair, Status, Verdict

# Seconds after which the outcome of a COMMIT whose answer was lost stays unknown, and between two attempts to read it.
PATIENCE, PAUSE = 60.0, 1.0


def carry_out_repair(wanted: PlannedVerdict, api: Repairing, begin: Begin) -> Ended:
    """Carry out a planned repair, unless its verdict has changed.

    :param wanted: a verdict as plain data, from a plan that was just made or saved.
    :param begin: records the repair before it is committed.
    :raises CloudError: if Placement is lost.
    :raises DatabaseError: if a database is lost before the COMMIT.
    :raises JournalError: if the journal cannot be written.
    """
    name, uuid = wanted["cell"], wanted.get("database")
    cell = next((cell for cell in api.sources.cells if cell.name == name and uuid in (None, cell.uuid)), None)
    if cell is None:
        known = f", with the uuid {uuid}" if uuid else ""
        return skipped(f"cell {name} is not among the named databases{known}; nothing was written")
    if wanted["repair"] == Repair.UNSET_ALLOCATION:
        return unset(cell, wanted, api, begin)
    try:
        return _carried_out(cell, wanted, api, begin)
    except BusyError as error:
        return Ended(ChangeResult.FAILED, f"{error.what}; nothing was written")


def _carried_out(cell: Cell, wanted: PlannedVerdict, api: Repairing, begin: Begin) -> Ended:
    verdict = _judged(cell, wanted, api, "since the plan")
    if isinstance(verdict, Ended):
        return verdict
    if detail := permission.unstopped(verdict):
        return skipped(detail)
    usages = permission.answers(verdict, api.ask, api.selection.gone)
    verdict = _judged(cell, wanted, api, "while the hosts were asked")  # asking takes time
    if isinstance(verdict, Ended):
        return verdict
    settled = permission.settle(verdict, usages)
    if refusal := refused(settled):
        return refusal
    return _repair(cell, settled, begin, "; ".join(permission.witnesses(verdict, usages)))


def _judged(cell: Cell, wanted: PlannedVerdict, api: Repairing, moment: str) -> Verdict | Ended:
    """Judge again; return the end of the repair if the verdict differs from the planned one.

    :param moment: when it may have changed.
    """
    hosts = frozenset({wanted["host"]}) if wanted["host"] else None
    ids = {device["id"] for device in wanted["devices"]}
    fresh = verdicts_of(api.sources, cell, replace(api.selection, hosts=hosts, instance=None, classes=frozenset()))
    for verdict in fresh:
        if ids & {row.id for row in verdict.rows} or (not ids and about(verdict.to_dict()) == about(wanted)):
            break
    else:
        return GONE
    if verdict.status is Status.HEALS:
        return Ended(ChangeResult.UNCHANGED, verdict.because)
    if verdict.status is not Status.STALE or key(verdict.to_dict()) != key(wanted):
        return skipped(f"changed {moment}; now it is {verdict.status}: {verdict.because}")
    return verdict


def _repair(cell: Cell, verdict: Verdict, begin: Begin, witness: str) -> Ended:
    if verdict.repair is Repair.RESTART:
        return skipped(f"{permission.by_hand(verdict)}. {witness}")
    moment = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with writing(cell.database) as connection:
        written = changes(verdict, relatives(connection, verdict), moment)
        if not permission.permits(verdict, written):
            return skipped("a related function changed since the hosts were asked; nothing was written")
        before = [row for change in written if (row := whole_row(connection, change)) is not None]
        if len(before) != len(written):
            return skipped("a row is gone since it was judged; nothing was written")
        begin(payload(cell, verdict, written, before, witness=witness))
        for statement, change in zip(statements(connection, verdict, written), written, strict=True):
            if connection.execute(statement).rowcount != 1:
                detail = f"{change.table} {change.id}, or what its verdict rests on, changed meanwhile"
                return skipped(f"{detail}; nothing was written")
        commit = committed(connection, cell.database, written, before)
    if commit.result is ChangeResult.DONE:
        outcome = "migration set to failed" if verdict.repair is Repair.FAIL_MIGRATION else "written"
        return Ended(ChangeResult.DONE, "; ".join(filter(None, (outcome, commit.detail, witness))))
    if commit.result is ChangeResult.FAILED:
        return Ended(ChangeResult.FAILED, f"{commit.detail}; nothing was written")
    return commit


def committed(
    connection: sa.Connection,
    database: Database,
    written: Sequence[Change],
    before: Sequence[Mapping[str, Any]],
    *,
    undone: bool = False,
) -> Ended:
    """Commit; if the answer is lost, read the rows back on a new connection for at most :data:`PATIENCE` seconds.

    The read locks the rows, so it waits until the old transaction has ended.

    :param before: the complete rows before the changes.
    :param undone: whether the transaction restored ``before`` instead of making the changes.
    """
    try:
        connection.commit()
    except SQLAlchemyError as error:
        reason = f"the answer to COMMIT was lost ({unreachable(database, error).what})"
    else:
        return Ended(ChangeResult.DONE)
    with suppress(SQLAlchemyError):  # a COMMIT that failed, not its answer, still holds its locks
        connection.invalidate()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with writing(database) as reader:
                rows = [whole_row(reader, change, lock=True) or {} for change in written]
        except DatabaseError as error:
            if time.monotonic() >= deadline:
                return _unknown(database, f"{reason}, and the rows could not be read back: {error.what}")
            time.sleep(PAUSE)
        else:
            break
    new = all(change.new.items() <= row.items() for change, row in zip(written, rows, strict=True))
    old = all(
        {name: known[name] for name in change.new}.items() <= row.items()
        for change, row, known in zip(written, rows, before, strict=True)
    )
    if new or old:
        state = "as the repair writes them" if new else "as they were before the repair"
        result = ChangeResult.DONE if (old if undone else new) else ChangeResult.FAILED
        return Ended(result, f"{reason}; read back: the rows are {state}")
    return _unknown(database, f"{reason}, and somebody else has written the rows since")


def _unknown(database: Database, detail: str) -> Ended:
    remedy = "make the database reachable, then see what was committed with gpustack undo ID --check"
    lost = DatabaseError(f"whether it was committed is not known: {detail}", where=database.where, remedy=remedy)
    return Ended(ChangeResult.UNKNOWN, detail, lost)


def statements(
    connection: sa.Connection, verdict: Verdict, changes: Sequence[Change], others: Iterable[Change] = ()
) -> list[sa.Update]:
    """Return the statements of a repair. Each compares every fact that the verdict depends on.

    :param others: the changes of other repairs in the same script.
    """
    by_table = by_key((change.table, change.id) for change in (*changes, *others))
    facts = conditions(verdict.seen, connection, {table: set(ids) for table, ids in by_table.items()})
    return [change.statement(facts) for change in changes]


def unfreed(planned: Sequence[PlannedVerdict], sources: Sources, wait: float) -> list[PlannedVerdict]:
    """Wait until nova-compute has freed the rows of failed migrations in its periodic task; return those with others.

    :param wait: seconds.
    :raises DatabaseError: if a database is lost.
    """
    deadline = time.monotonic() + wait
    while True:
        held = [verdict for verdict in planned if _holds(verdict, sources)]
        if not held or time.monotonic() >= deadline:
            return held
        time.sleep(min(2.0, max(0.1, wait / 20)))


def _holds(verdict: PlannedVerdict, sources: Sources) -> bool:
    table = tables.pci_devices.c
    query = sa.select(sa.func.count()).where(
        table.id.in_([device["id"] for device in verdict["devices"]]),
        table.instance_uuid.in_(sorted(spellings([str(verdict["instance"])]))),
        table.status.in_(("claimed", "allocated")),
    )
    (cell,) = (cell for cell in sources.cells if cell.name == verdict["cell"])
    with snapshot(cell.database) as connection:
        return bool(connection.execute(query).scalar_one())


def relatives(connection: sa.Connection, verdict: Verdict) -> dict[str, PciRow]:
    """Return the live rows of the verdict's compute node, by address."""
    if not verdict.rows:
        return {}
    table = tables.pci_devices.c
    query = sa.select(*ROW).where(table.compute_node_id == verdict.rows[0].compute_node_id, table.deleted == 0)
    return {row.address: PciRow.of(row) for row in connection.execute(query)}


def whole_row(connection: sa.Connection, change: Change, *, lock: bool = False) -> Mapping[str, Any] | None:
    """Return all columns of a row, including those that clean-up does not use; None if the row does not exist.

    :param lock: whether to lock the row, which waits for transactions that have written it.
    """
    table = sa.Table(change.table, sa.MetaData(), autoload_with=connection, resolve_fks=False)
    query = sa.select(table).where(table.c.id == change.id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().one_or_none()
    return None if row is None else dict(row)


@contextmanager
def writing(database: Database) -> Iterator[sa.Connection]:
    """Open a transaction for one repair; it is rolled back unless the caller commits.

    A statement waits for a lock no longer than one that reads. The transaction holds its own only for a few statements.

    :raises DatabaseError: if the database cannot be written; the message never contains the password.
    """
    kind = database.url.get_backend_name()
    arguments: dict[str, Any] = {"timeout": databases.LOCK_TIMEOUT} if kind == "sqlite" else {}
    with errors_of(database), connected(engine(database, **arguments), database) as connection:
        databases.limit_waits(connection)
        if kind == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif kind == "mysql":
            connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.commit()
        yield connection

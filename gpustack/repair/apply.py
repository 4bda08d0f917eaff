"""Apply a plan.

For each repair: judge again, ask its hosts (:mod:`gpustack.repair.permission`), write the journal, and carry out the
changes in one guarded transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from gpustack.base.errors import DatabaseError
from gpustack.novadb import tables
from gpustack.novadb.cells import Cell
from gpustack.novadb.databases import BusyError, Database, connected, engine, snapshot, unreachable
from gpustack.novadb.model import PciRow
from gpustack.novadb.read import ROW
from gpustack.novadb.sources import Sources
from gpustack.repair import permission
from gpustack.repair.allocation_removal import unset
from gpustack.repair.guards import conditions
from gpustack.repair.hypervisor import Ask
from gpustack.repair.journal import Journal
from gpustack.repair.outcome import Outcome, Result, about, gone, key, refused, skipped
from gpustack.repair.plan import Selection, verdicts_of
from gpustack.repair.repair import Change, changes
from gpustack.repair.verdict import PlannedVerdict, Repair, Status, Verdict

if TYPE_CHECKING:
    from openstack.connection import Connection

# Seconds that a statement waits for a lock.
LOCK_TIMEOUT = 5
# Seconds after which the outcome of a COMMIT whose answer was lost stays unknown, and between two attempts to read it.
PATIENCE, PAUSE = 60.0, 1.0


def carry_out(
    sources: Sources,
    planned: Sequence[PlannedVerdict],
    selection: Selection,
    journal: Journal,
    *,
    ask: Ask,
    wait: float = 150.0,
    cloud: Connection | None = None,
) -> Iterator[Outcome]:
    """Carry out the repairs of a plan, one at a time; skip those whose verdict has changed.

    :param planned: verdicts as plain data, from a plan that was just made or saved.
    :param wait: seconds to wait for nova-compute's periodic task after a migration was set to failed.
    :param cloud: the cloud whose Placement is written, for classes Q and S; these repairs come last.
    :raises CloudError: if Placement is lost.
    :raises DatabaseError: if a database is lost. The current repair is then not done, or its outcome is *unknown*.
    :raises JournalError: if the journal cannot be written.
    """
    for wanted in ordered(planned):
        cell = next((cell for cell in sources.cells if cell.name == wanted["cell"]), None)
        if cell is None:
            detail = f"cell {wanted['cell']} is not among the named databases; nothing was written"
            yield skipped(wanted, detail)
            continue
        if wanted["repair"] == Repair.UNSET_ALLOCATION:
            outcome = unset(sources, cell, wanted, selection, journal, ask, cloud)
        else:
            outcome = _carry_out_one(sources, cell, wanted, selection, journal, ask, wait)
        yield outcome
        if outcome.result is Result.UNKNOWN:
            raise outcome.lost or DatabaseError(outcome.detail)


def ordered(planned: Iterable[PlannedVerdict]) -> list[PlannedVerdict]:
    """Return planned repairs in the order in which they are carried out: allocations in Placement last."""
    return sorted(planned, key=lambda verdict: verdict["repair"] == Repair.UNSET_ALLOCATION)


def _carry_out_one(
    sources: Sources,
    cell: Cell,
    wanted: PlannedVerdict,
    selection: Selection,
    journal: Journal,
    ask: Ask,
    wait: float,
) -> Outcome:
    verdict = _judge_again(sources, cell, wanted, selection)
    if (changed := _changed(verdict, wanted, "since the plan")) or verdict is None:
        return changed or gone(wanted)
    if detail := permission.unstopped(verdict):
        return Outcome(verdict=verdict, result=Result.SKIPPED, detail=detail)
    usages = permission.answers(verdict, ask, selection.gone)
    if usages:  # asking takes time
        verdict = _judge_again(sources, cell, wanted, selection)
        if (changed := _changed(verdict, wanted, "while the hosts were asked")) or verdict is None:
            return changed or gone(wanted)
    settled = permission.settle(verdict, usages)
    if refusal := refused(settled):
        return refusal
    try:
        return _repair(cell, settled, journal, "; ".join(permission.witnesses(verdict, usages)), wait)
    except BusyError as error:
        return Outcome(verdict=verdict, result=Result.FAILED, detail=f"{error.what}; nothing was written")


def _changed(verdict: Verdict | None, wanted: PlannedVerdict, moment: str) -> Outcome | None:
    """Return the outcome if the verdict differs from the planned one; None if it is the same."""
    if verdict is None:
        return gone(wanted)
    if verdict.status is Status.HEALS:
        return Outcome(verdict=verdict, result=Result.GONE, detail=verdict.because)
    if verdict.status is not Status.STALE or key(verdict.to_dict()) != key(wanted):
        detail = f"changed {moment}; now it is {verdict.status}: {verdict.because}"
        return Outcome(verdict=verdict, result=Result.SKIPPED, detail=detail)
    return None


def _judge_again(sources: Sources, cell: Cell, wanted: PlannedVerdict, selection: Selection) -> Verdict | None:
    hosts = frozenset({wanted["host"]}) if wanted["host"] else None
    ids = {device["id"] for device in wanted["devices"]}
    fresh = verdicts_of(sources, cell, replace(selection, hosts=hosts, instance=None, classes=frozenset()))
    for verdict in fresh:
        if ids & {row.id for row in verdict.rows} or (not ids and about(verdict.to_dict()) == about(wanted)):
            return verdict
    return None


def _repair(cell: Cell, verdict: Verdict, journal: Journal, witness: str, wait: float) -> Outcome:
    def ended(result: Result, detail: str) -> Outcome:
        return Outcome(verdict=verdict, result=result, detail=detail)

    if verdict.repair is Repair.RESTART:
        return ended(Result.RESTART, f"restart nova-compute on {verdict.host}; instances keep running. {witness}")
    moment = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with writing(cell.database) as connection:
        written = changes(verdict, relatives(connection, verdict), moment)
        if not permission.permits(verdict, written):
            return ended(Result.SKIPPED, "a related function changed since the hosts were asked; nothing was written")
        before = [row for change in written if (row := whole_row(connection, change)) is not None]
        if len(before) != len(written):
            return ended(Result.SKIPPED, "a row is gone since it was judged; nothing was written")
        number = journal.begin(
            *(cell.name, str(cell.uuid), verdict.to_dict(), written, before),
            witness=witness,
            held=verdict.held,
            origin=verdict.origin,
        )
        try:
            for statement, change in zip(statements(connection, verdict, written), written, strict=True):
                if connection.execute(statement).rowcount != 1:
                    connection.rollback()
                    journal.end(number, "skipped", "changed meanwhile")
                    detail = f"{change.table} {change.id}, or what its verdict rests on, changed meanwhile; "
                    return ended(Result.SKIPPED, f"{detail}nothing was written")
        except SQLAlchemyError:
            journal.end(number, "failed", "the database refused or was lost before COMMIT")
            raise
        commit = committed(connection, cell.database, written, before)
    journal.end(number, commit.outcome, commit.detail)
    if commit.outcome == "unknown":
        lost = DatabaseError(
            f"whether repair {number} was committed is not known: {commit.detail}",
            where=cell.database.where,
            remedy="make the database reachable, then see what was committed with gpustack cleanup undo "
            f"{quote(str(journal.path))} --check",
        )
        return Outcome(verdict=verdict, result=Result.UNKNOWN, detail=commit.detail, lost=lost)
    if commit.outcome == "failed":
        return ended(Result.FAILED, f"{commit.detail}; nothing was written")
    if verdict.repair is Repair.FAIL_MIGRATION:
        return _await_nova(cell, verdict, witness, wait)
    return ended(Result.REPAIRED, "; ".join(filter(None, ("written", commit.detail, witness))))


@dataclass(frozen=True, kw_only=True)
class Commit:
    """How a transaction ended.

    :ivar outcome: ``done``, ``failed`` or ``unknown``, as in a journal.
    :ivar detail: how that was determined, if the answer to COMMIT was lost.
    """

    outcome: str
    detail: str = ""


def committed(
    connection: sa.Connection,
    database: Database,
    written: Sequence[Change],
    before: Sequence[Mapping[str, Any]],
    *,
    undone: bool = False,
) -> Commit:
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
        return Commit(outcome="done")
    with suppress(SQLAlchemyError):  # a COMMIT that failed, not its answer, still holds its locks
        connection.invalidate()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with writing(database) as reader:
                rows = [whole_row(reader, change, lock=True) or {} for change in written]
        except DatabaseError as error:
            if time.monotonic() >= deadline:
                return Commit(outcome="unknown", detail=f"{reason}, and the rows could not be read back: {error.what}")
            time.sleep(PAUSE)
        else:
            break
    new = all(change.new.items() <= row.items() for change, row in zip(written, rows, strict=True))
    old = all(
        {name: known[name] for name in change.new}.items() <= row.items()
        for change, row, known in zip(written, rows, before, strict=True)
    )
    if new or old:
        done = old if undone else new
        return Commit(outcome="done" if done else "failed", detail=f"{reason}; read back: the rows are {_state(new)}")
    return Commit(outcome="unknown", detail=f"{reason}, and somebody else has written the rows since")


def _state(new: bool) -> str:
    return "as the repair writes them" if new else "as they were before the repair"


def statements(
    connection: sa.Connection, verdict: Verdict, changes: Sequence[Change], others: Iterable[Change] = ()
) -> list[sa.Update]:
    """Return the statements of a repair. Each compares every fact that the verdict depends on.

    :param others: the changes of other repairs in the same script.
    """
    written: dict[str, set[int]] = {}
    for change in (*changes, *others):
        written.setdefault(change.table, set()).add(change.id)
    facts = conditions(verdict.seen, connection, written)
    return [change.statement(facts) for change in changes]


def _await_nova(cell: Cell, verdict: Verdict, witness: str, wait: float) -> Outcome:
    """Wait until nova-compute has freed the rows in its periodic task."""
    table = tables.pci_devices.c
    query = sa.select(sa.func.count()).where(
        table.id.in_([row.id for row in verdict.rows]),
        table.instance_uuid == verdict.owner,
        table.status.in_(("claimed", "allocated")),
    )
    deadline = time.monotonic() + wait
    while True:
        with snapshot(cell.database) as connection:
            if connection.execute(query).scalar_one() == 0:
                detail = f"migration set to failed; Nova freed the device; {witness}"
                return Outcome(verdict=verdict, result=Result.REPAIRED, detail=detail)
        if time.monotonic() >= deadline:
            detail = "migration set to failed; Nova frees the device in its next periodic: plan again in a minute; "
            detail += witness
            return Outcome(verdict=verdict, result=Result.WAITING, detail=detail)
        time.sleep(min(2.0, max(0.1, wait / 20)))


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

    A statement waits at most :data:`LOCK_TIMEOUT` seconds for a lock. The transaction holds its own locks only for a
    few statements.

    :raises DatabaseError: if the database cannot be written; the message never contains the password.
    """
    sqlite = database.url.get_backend_name() == "sqlite"
    arguments = {"timeout": LOCK_TIMEOUT} if sqlite else {}
    opened = engine(database, **arguments)
    try:
        with connected(opened, database) as connection:
            match connection.dialect.name:
                case "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                case "postgresql":
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
                case _:
                    connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT}")
                    connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                    connection.commit()
            yield connection
    except SQLAlchemyError as error:
        raise unreachable(database, error) from None
    finally:
        opened.dispose()

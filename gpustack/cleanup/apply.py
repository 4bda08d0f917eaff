"""Carrying a plan out: each repair is judged afresh, journaled, written in one guarded transaction, and checked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from gpustack.cleanup import tables
from gpustack.cleanup.connect import BusyError, Cell, Database, connected, engine, snapshot, unreachable
from gpustack.cleanup.facts import HostState, PciRow
from gpustack.cleanup.hypervisor import UNKNOWN, Ask
from gpustack.cleanup.journal import Journal
from gpustack.cleanup.outcome import Outcome, Result, about, key, stub
from gpustack.cleanup.plan import Selection, Sources, verdicts_of
from gpustack.cleanup.read import ROW
from gpustack.cleanup.repair import Change, changes
from gpustack.cleanup.unset import unset
from gpustack.cleanup.verdict import Repair, Status, Verdict

if TYPE_CHECKING:
    from openstack.connection import Connection

# How long a statement waits for a lock of Nova's before it gives up, in seconds.
LOCK_TIMEOUT = 5


def carry_out(
    sources: Sources,
    planned: Sequence[Mapping[str, Any]],
    selection: Selection,
    journal: Journal,
    *,
    ask: Ask,
    wait: float = 150.0,
    cloud: Connection | None = None,
) -> Iterator[Outcome]:
    """Carry out the repairs of a plan, one after another; what is no longer as it was planned is skipped.

    :param planned: verdicts as plain data, from a plan that was just made or saved.
    :param wait: how long to wait for Nova's periodic after a migration was set to failed, in seconds.
    :param cloud: whose Placement is written, for class Q; these repairs come last.
    :raises CloudError: when Placement is lost.
    :raises DatabaseError: when a database is lost; the repair under way is then done or not done, never half done.
    """
    for wanted in sorted(planned, key=lambda one: one["repair"] == Repair.UNSET_ALLOCATION):
        cell = next((cell for cell in sources.cells if cell.name == wanted["cell"]), None)
        if cell is None:
            detail = f"cell {wanted['cell']} is not among the named databases; nothing was written"
            yield Outcome(verdict=stub(wanted), result=Result.SKIPPED, detail=detail)
            continue
        if wanted["repair"] == Repair.UNSET_ALLOCATION:
            yield unset(sources, cell, wanted, selection, journal, ask, cloud)
            continue
        verdict = _judge_again(sources, cell, wanted, selection)
        if verdict is None:
            yield Outcome(verdict=stub(wanted), result=Result.GONE, detail="nothing is wrong any more")
        elif verdict.status is Status.HEALS:
            yield Outcome(verdict=verdict, result=Result.GONE, detail=verdict.because)
        elif verdict.status is not Status.STALE or key(verdict.to_dict()) != key(wanted):
            detail = f"changed since the plan; now it is {verdict.status}: {verdict.because}"
            yield Outcome(verdict=verdict, result=Result.SKIPPED, detail=detail)
        else:
            try:
                yield _repair(cell, verdict, journal, ask, wait)
            except BusyError as error:
                yield Outcome(verdict=verdict, result=Result.FAILED, detail=f"{error.what}; nothing was written")


def _judge_again(sources: Sources, cell: Cell, wanted: Mapping[str, Any], selection: Selection) -> Verdict | None:
    hosts = frozenset({wanted["host"]}) if wanted["host"] else None
    ids = {device["id"] for device in wanted["devices"]}
    fresh = verdicts_of(sources, cell, replace(selection, hosts=hosts, instance=None, classes=frozenset()))
    for verdict in fresh:
        if ids & {row.id for row in verdict.rows} or (not ids and about(verdict.to_dict()) == about(wanted)):
            return verdict
    return None


def in_use(verdict: Verdict, users: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The addresses that a repair must not touch because a guest has the device, by the hypervisor's word.

    A row that Nova does not manage any more (its node or itself is deleted) only matters to the instance that it
    names: the device may rightly be another's by now, whose row is a different one.
    """
    own_only = verdict.repair in (Repair.RETIRE, Repair.CLEAR_DELETED)
    wrong = frozenset({verdict.owner, UNKNOWN})
    return tuple(
        sorted(
            row.address
            for row in verdict.rows
            if (found := users.get(row.address.lower())) and (found & wrong or not own_only)
        )
    )


def relatives_in_use(
    made: Sequence[Change], near: Mapping[str, PciRow], users: Mapping[str, frozenset[str]]
) -> tuple[str, ...]:
    """The addresses of other functions that keep those from being offered which a repair sets free.

    A physical function must not be offered while a guest has a virtual one of it, nor the other way round.
    """
    offered = {change.seen["address"] for change in made if change.new.get("status") == "available"}
    parents = {near[address].parent_addr for address in offered if address in near}
    family = offered | parents | {row.address for row in near.values() if row.parent_addr in offered}
    return tuple(sorted(address for address in family if address and users.get(address.lower())))


def _repair(cell: Cell, verdict: Verdict, journal: Journal, ask: Ask, wait: float) -> Outcome:
    def ended(result: Result, detail: str) -> Outcome:
        return Outcome(verdict=verdict, result=result, detail=detail)

    if verdict.repair is Repair.RESTART:
        return ended(Result.RESTART, f"restart nova-compute on {verdict.host}; guests keep running")
    if verdict.stop and verdict.host_state is not HostState.STOPPED:
        # One that is "down", or has no service any more, may only be cut off, with the rows still in its memory.
        return ended(Result.SKIPPED, f"stop nova-compute on {verdict.host} first, then say --stopped {verdict.host}")
    witness = "the hypervisor was not asked"
    users: Mapping[str, frozenset[str]] = {}
    if verdict.ask_hypervisor:
        said = ask(verdict.host)
        if said.users is not None and (taken := in_use(verdict, said.users)):
            return ended(Result.SKIPPED, f"the hypervisor says that a guest uses {', '.join(taken)}")
        if said.users is None and verdict.stop and verdict.owner:
            return ended(Result.SKIPPED, f"guests may run there, and the hypervisor could not be asked: {said.reason}")
        witness = "the hypervisor says that no guest uses it" if said.users is not None else said.reason
        users = said.users or {}
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with writing(cell.database) as connection:
        near = relatives(connection, verdict)
        made = changes(verdict, near, now)
        offers = verdict.repair in (Repair.FREE, Repair.UNBLOCK)
        if offers and (taken := relatives_in_use(made, near, users)):
            return ended(Result.SKIPPED, f"the hypervisor says that a guest uses {', '.join(taken)}")
        before = [row for change in made if (row := whole_row(connection, change)) is not None]
        if len(before) != len(made):
            return ended(Result.SKIPPED, "a row is gone since it was judged; nothing was written")
        number = journal.begin(cell.name, str(cell.uuid), verdict.to_dict(), made, before)
        for change in made:
            if connection.execute(change.statement()).rowcount != 1:
                connection.rollback()
                journal.end(number, "skipped", "changed meanwhile")
                return ended(Result.SKIPPED, f"{change.table} {change.id} changed meanwhile; nothing was written")
        connection.commit()
    journal.end(number, "done")
    if verdict.repair is Repair.FAIL_MIGRATION:
        return _await_nova(cell, verdict, wait)
    return ended(Result.REPAIRED, f"written; {witness}")


def _await_nova(cell: Cell, verdict: Verdict, wait: float) -> Outcome:
    """Wait until nova-compute has freed the rows in its periodic."""
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
                return Outcome(
                    verdict=verdict, result=Result.REPAIRED, detail="migration set to failed; Nova freed the device"
                )
        if time.monotonic() >= deadline:
            detail = "migration set to failed; Nova frees the device in its next periodic: plan again in a minute"
            return Outcome(verdict=verdict, result=Result.WAITING, detail=detail)
        time.sleep(min(2.0, max(0.1, wait / 20)))


def relatives(connection: sa.Connection, verdict: Verdict) -> dict[str, PciRow]:
    """The live rows of the verdict's compute node by address."""
    if not verdict.rows:
        return {}
    table = tables.pci_devices.c
    query = sa.select(*ROW).where(table.compute_node_id == verdict.rows[0].compute_node_id, table.deleted == 0)
    return {row.address: PciRow._make(row) for row in connection.execute(query)}


def whole_row(connection: sa.Connection, change: Change) -> Mapping[str, Any] | None:
    """Every column of a row, also those that clean-up has no use for; None when there is no such row."""
    table = sa.Table(change.table, sa.MetaData(), autoload_with=connection, resolve_fks=False)
    row = connection.execute(sa.select(table).where(table.c.id == change.id)).mappings().one_or_none()
    return None if row is None else dict(row)


@contextmanager
def writing(database: Database) -> Iterator[sa.Connection]:
    """A transaction for one repair: rolled back unless it is committed inside.

    It waits :data:`LOCK_TIMEOUT` seconds for a lock at most, and holds its own for the length of a few statements.

    :raises DatabaseError: when the database can't be written; never with the password in it.
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

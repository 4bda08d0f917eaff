"""Compare ``gpustack cleanup plan`` on a large cell with a plain client that reads the same columns of the same rows.

    .venv/bin/python bench/cleanup.py [ROWS [mariadb|postgresql]]

A cell of 1,000,000 rows of pci_devices in 10,000 compute nodes, with 200,000 instances, on a real server. Limits:

* wall time of the plan: at most 1.5 times that of the client;
* peak memory: grows by less than a tenth when the cell is four times as large;
* the longest transaction of 100 repairs.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import limits
import sqlalchemy as sa

from gpustack.changes.change import ChangeResult
from gpustack.changes.journal import RunHead, RunJournal
from gpustack.changes.run import run
from gpustack.novadb import tables
from gpustack.novadb.model import ComputeNode, PciRow
from gpustack.novadb.owners import INSTANCE
from gpustack.novadb.sources import Sources
from gpustack.repair import changes as repair_changes
from gpustack.repair import plan
from gpustack.repair.outcome import Repairing
from gpustack.repair.plan import Selection
from gpustack_demo.embedded.database import DatabaseServer

DEVICES, GUESTS, LEAKS = 100, 20, 100
HOSTS = frozenset(f"node-{number}" for number in range(10))
"""The hosts that are down, with the leaks."""
REQUESTS = json.dumps([{"count": 1, "alias_name": "g", "request_id": "r", "spec": []}])
TABLES = ("pci_devices", "compute_nodes", "services", "instances", "instance_extra", "migrations")


def numbers(engine: sa.Engine, count: int) -> str:
    """A derived table with the numbers from 0 on."""
    if engine.dialect.name == "postgresql":
        return f"(SELECT generate_series(0, {count - 1}) AS seq) AS s"
    return f"seq_0_to_{count - 1} AS s"


def fill(engine: sa.Engine, rows: int) -> None:
    """Fill a healthy cell with 100 leaks (class A, on hosts that are down: their instances are offloaded)."""
    tables.metadata.drop_all(engine)
    tables.metadata.create_all(engine, [tables.metadata.tables[name] for name in TABLES])
    nodes = rows // DEVICES
    postgres = engine.dialect.name == "postgresql"
    utc = "now() AT TIME ZONE 'utc'" if postgres else "UTC_TIMESTAMP()"
    old = "TIMESTAMP '2026-01-01 00:00:00'"
    name = "CONCAT('node-', s.seq)"
    vm = "CONCAT('00000000-0000-0000-0000-', LPAD(CAST(s.seq AS CHAR(12)), 12, '0'))"
    # Guests of a node have its first devices.
    guest = (
        f"(s.seq / {DEVICES}) * {GUESTS} + s.seq % {DEVICES}"
        if postgres
        else (f"(s.seq DIV {DEVICES}) * {GUESTS} + s.seq % {DEVICES}")
    )
    is_taken = f"s.seq % {DEVICES} < {GUESTS}"
    of_row = vm.replace("s.seq", f"({guest})")
    node = f"s.seq / {DEVICES}" if postgres else f"s.seq DIV {DEVICES}"
    host = f"CONCAT('node-', s.seq {'/' if postgres else 'DIV'} {GUESTS})"
    address = f"CONCAT('0000:', LPAD(CAST(s.seq % {DEVICES} AS CHAR(2)), 2, '0'), ':00.0')"
    placed = f"CASE WHEN s.seq >= {LEAKS} THEN {host} END"
    pools = json.dumps(
        {
            "nova_object.data": {
                "objects": [
                    {
                        "nova_object.data": {
                            "vendor_id": "10de",
                            "product_id": "11b4",
                            "count": DEVICES - GUESTS,
                            "tags": {"dev_type": "type-PCI"},
                        }
                    }
                ]
            }
        }
    )
    statements = [
        "DROP TABLE IF EXISTS alembic_version",
        "CREATE TABLE alembic_version (version_num VARCHAR(32))",
        "INSERT INTO alembic_version VALUES ('2903cd72dc14')",
        (
            "INSERT INTO compute_nodes (id, uuid, host, hypervisor_hostname, pci_stats, updated_at, deleted)"  # noqa: S608
            f" SELECT s.seq + 1, {name}, {name}, {name}, '{pools}', {old}, 0 FROM {numbers(engine, nodes)}"
        ),
        "INSERT INTO services (id, host, binary, disabled, forced_down, last_seen_up, deleted)".replace(  # noqa: S608
            "binary", '"binary"' if postgres else "`binary`"
        )
        + f" SELECT s.seq + 1, {name}, 'nova-compute', false, false, CASE WHEN s.seq < 10 THEN {old} ELSE {utc} END, 0"  # noqa: S608
        f" FROM {numbers(engine, nodes)}",
        (
            "INSERT INTO instances (id, uuid, host, node, vm_state, updated_at, deleted)"  # noqa: S608
            f" SELECT s.seq + 1, {vm}, {placed}, {placed}, 'active', {old}, 0 FROM {numbers(engine, nodes * GUESTS)}"
        ),
        (
            "INSERT INTO instance_extra (id, instance_uuid, pci_requests, deleted)"  # noqa: S608
            f" SELECT s.seq + 1, {vm}, '{REQUESTS}', 0 FROM {numbers(engine, nodes * GUESTS)}"
        ),
        (
            "INSERT INTO pci_devices (id, compute_node_id, address, vendor_id, product_id, dev_type, label,"  # noqa: S608
            " status, instance_uuid, request_id, created_at, updated_at, deleted)"
            f" SELECT s.seq + 1, {node} + 1, {address},"
            f" '10de', '11b4', 'type-PCI', 'label', CASE WHEN {is_taken} THEN 'allocated' ELSE 'available' END,"
            f" CASE WHEN {is_taken} THEN {of_row} END, CASE WHEN {is_taken} THEN 'r' END, {old}, {old}, 0"
            f" FROM {numbers(engine, rows)}"
        ),
        # The indexes of Nova's schema on the columns that the plan selects by.
        "CREATE UNIQUE INDEX x0 ON pci_devices (compute_node_id, address, deleted)",
        "CREATE INDEX x1 ON pci_devices (compute_node_id, deleted)",
        "CREATE INDEX x2 ON pci_devices (instance_uuid, deleted)",
        "CREATE INDEX x3 ON instances (host, node, deleted)",
        "CREATE UNIQUE INDEX x4 ON instances (uuid)",
        "CREATE INDEX x5 ON instance_extra (instance_uuid)",
    ]
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))
        connection.exec_driver_sql("ANALYZE" if postgres else f"ANALYZE TABLE {', '.join(TABLES)}")


CONDUCTOR = 10_000_000
RENEWED = 15.0
"""Seconds between two reports of all services: ``service_down_time`` is 60."""


@contextlib.contextmanager
def reporting(engine: sa.Engine) -> Iterator[None]:
    """Let a nova-conductor and each nova-compute that is up report, at once and again during the run.

    Without it a slow machine measures another plan: 60 seconds after filling, all hosts are down and all is undecided.
    """
    services, over = tables.services, threading.Event()
    up = services.update().where(services.c.id > len(HOSTS))

    def report() -> None:
        with engine.begin() as connection:
            now = datetime.now(UTC).replace(tzinfo=None)
            connection.execute(up.values(last_seen_up=now, updated_at=now))

    def renew() -> None:
        while not over.wait(RENEWED):
            report()

    with engine.begin() as connection:
        connection.execute(services.insert(), {"id": CONDUCTOR, "host": "c", "binary": "nova-conductor", "deleted": 0})
    report()
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def expected(url: str) -> None:
    """Check the verdicts of the leaks, so that the right plan is measured."""
    verdicts = Counter((v.klass, v.status.value) for v in plan.make(_sources(url), Selection(hosts=HOSTS)).verdicts)
    assert verdicts == {("A", "stale"): LEAKS}, f"not the plan to measure: {dict(verdicts)}"


def client(url: str) -> int:
    """Read the same columns of the same rows as the plan; return the number of rows."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    count = 0
    with engine.connect().execution_options(stream_results=True, yield_per=5000) as connection:
        rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
        guests, extra = tables.instances.c, tables.instance_extra.c
        for query in (
            sa.select(*(rows[name] for name in PciRow._fields)).order_by(rows.compute_node_id),
            sa.select(*(guests[name] for name in INSTANCE)).where(guests.deleted == 0),
            sa.select(extra.instance_uuid, extra.pci_requests),
            sa.select(*(nodes[name] for name in ComputeNode.__dataclass_fields__)),
            sa.select(*tables.services.columns),
        ):
            for _row in connection.execute(query):
                count += 1
    return count


def planned(url: str) -> int:
    """Make the plan; return the number of verdicts."""
    return len(plan.make(_sources(url), Selection()).verdicts)


def _sources(url: str) -> Sources:
    return Sources.from_url(url)


def measured(work: Callable[[str], int], url: str) -> tuple[int, float, float]:
    """Run a function in a separate process; return its result, seconds, and peak memory in MiB."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=_measure, args=(work, url, send))
    child.start()
    result: tuple[int, float, float] = receive.recv()
    child.join()
    return result


def _measure(work: Callable[[str], int], url: str, send: object) -> None:
    began = time.perf_counter()
    count = work(url)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    send.send((count, time.perf_counter() - began, peak))  # type: ignore[attr-defined]


def longest_lock(url: str) -> tuple[int, float]:
    """Repair 100 leaks; return their number and the longest time from the first write of a transaction to its end."""
    began, longest = 0.0, 0.0

    def first_write(_c: object, _cursor: object, text: str, *_rest: object) -> None:
        nonlocal began
        if text.startswith("UPDATE"):
            began = time.perf_counter()

    def end(_c: object) -> None:
        nonlocal began, longest
        if began:
            longest, began = max(longest, time.perf_counter() - began), 0.0

    sources = _sources(url)
    wanted = [verdict.to_dict() for verdict in plan.make(sources, Selection(hosts=HOSTS)).repairs]
    sa.event.listen(sa.Engine, "before_cursor_execute", first_write)
    sa.event.listen(sa.Engine, "commit", end)
    with tempfile.TemporaryDirectory() as directory:
        repairs = repair_changes.planned(wanted)
        journal = RunJournal(RunHead(id="bench", command="cleanup apply"), repairs, Path(directory) / "journal")
        outcomes = run(repairs, {"repair": Repairing(sources=sources)}, journal)
    return sum(outcome.result is ChangeResult.DONE for outcome in outcomes), longest


def main() -> None:
    """Measure, print, and check the limits."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    kind = sys.argv[2] if len(sys.argv) > 2 else "mariadb"
    with DatabaseServer(kind) as server:
        maintenance = sa.make_url(server.url)
        if kind == "postgresql":
            maintenance = maintenance.set(database="postgres")
        with sa.create_engine(maintenance, isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql("CREATE DATABASE cell1")
            if kind == "mariadb":  # as configured for Nova; the default is 128 MiB
                connection.exec_driver_sql("SET GLOBAL innodb_buffer_pool_size = 1073741824")
        target = maintenance.set(database="cell1")
        url = target.render_as_string(hide_password=False)
        engine = sa.create_engine(target, poolclass=sa.NullPool)
        peaks = []
        for count in (rows // 4, rows):
            fill(engine, count)
            with reporting(engine):
                expected(url)
                rows_read, plain, _peak = measured(client, url)
                verdicts, wall, peak = measured(planned, url)
                repaired, lock = longest_lock(url) if count == rows else (0, 0.0)
            assert verdicts == LEAKS, f"the plan has {verdicts} verdicts, not {LEAKS}"
            peaks.append(peak)
            print(
                f"{kind}, {count} rows: plan {wall:.1f} s, client {plain:.1f} s ({rows_read} rows), "
                f"{wall / plain:.2f} times; peak {peak:.0f} MiB; {verdicts} verdicts"
            )
        print(f"{repaired} repairs, longest transaction {lock * 1000:.1f} ms")
    assert repaired == LEAKS
    limits.end(limits.check("cleanup.time", wall / plain), limits.check("cleanup.memory", peaks[1] / peaks[0]))


if __name__ == "__main__":
    main()

"""Database servers that refuse, wait, end, or hold a cell: what is reported then, and that nothing is half done."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from gpustack.novadb import connection_options, databases, tables
from gpustack.novadb.sources import Sources
from gpustack.repair import apply
from gpustack.repair.verdict import PlannedVerdict, Repair
from support.cellfile import CellFile, answering
from support.cleanup_runs import results, run, undoable, undone, verdict_of, wanted
from support.killer import REPAIRS, repair_killed_anywhere, silent_cell, undo_killed_anywhere

PASSWORD = "p@ss/w:rd-%s3cret"
QUOTED = "p%40ss%2Fw%3Ard-%25s3cret"
EACH_STEP = bool(os.environ.get("GPUSTACK_KILLS"))
"""``make cleanup-servers``. Without it, one repair and one undo are killed at some steps; SQLite has each in CI."""


def user(cell: CellFile, rights: str) -> str:
    """A user with an awkward password and these rights; the URL to log in with."""
    url = cell.engine.url
    with cell.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if url.get_backend_name() == "postgresql":
            connection.exec_driver_sql("DROP OWNED BY reader") if _exists(connection) else None
            connection.exec_driver_sql("DROP ROLE IF EXISTS reader")
            connection.exec_driver_sql(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD.replace('%', '%%')}'")
            connection.exec_driver_sql(f"GRANT {rights} ON ALL TABLES IN SCHEMA public TO reader")
        else:
            connection.exec_driver_sql("DROP USER IF EXISTS reader@127.0.0.1")
            connection.exec_driver_sql(f"CREATE USER reader@127.0.0.1 IDENTIFIED BY '{PASSWORD.replace('%', '%%')}'")
            connection.exec_driver_sql(f"GRANT {rights} ON cell1.* TO reader@127.0.0.1")
    scheme = url.get_backend_name()
    return f"{scheme}://reader:{QUOTED}@127.0.0.1:{url.port}/cell1"


def _exists(connection: sa.Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT 1 FROM pg_roles WHERE rolname = 'reader'").all())


def _without_api(sources: Sources) -> list[PlannedVerdict]:
    return [verdict for verdict in wanted(sources) if verdict["repair"] != "fail-migration"]


def test_a_row_that_nova_holds_locked(cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "LOCK_TIMEOUT", 1)
    sources = Sources.from_url(cell.url)
    planned = _without_api(sources)
    before = cell.dump()
    with cell.engine.begin() as nova:
        nova.exec_driver_sql("UPDATE pci_devices SET label = label")
        nova.exec_driver_sql("SELECT * FROM pci_devices FOR UPDATE")
        outcomes = run(sources, tmp_path / "journal", planned)
        assert outcomes
        assert {o.result for o in outcomes if verdict_of(o)["devices"]} <= {
            ChangeResult.FAILED,
            ChangeResult.SKIPPED,
            ChangeResult.DONE,
        }
        assert any("lock" in o.detail for o in outcomes)
    changed = [row for row, old in zip(cell.dump()["pci_devices"], before["pci_devices"], strict=True) if row != old]
    assert not changed


def test_a_table_that_a_backup_or_an_upgrade_holds(
    cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB waits a day for the lock of a table, MySQL a year, unless its own option limits that."""
    monkeypatch.setattr(databases, "LOCK_TIMEOUT", 1)
    sources = Sources.from_url(cell.url)
    (planned, *_more) = (repair for repair in _without_api(sources) if repair["repair"] == "free")
    postgres = cell.engine.dialect.name == "postgresql"
    begun = time.monotonic()
    with cell.engine.connect() as other:
        other.exec_driver_sql("LOCK TABLE pci_devices IN SHARE MODE" if postgres else "FLUSH TABLES WITH READ LOCK")
        release = threading.Timer(60, other.invalidate)
        release.start()
        (outcome,) = run(sources, tmp_path / "journal", [planned])
        release.cancel()
    assert (outcome.result, time.monotonic() - begun < 50) == (ChangeResult.FAILED, True)
    assert "a lock could not be had" in outcome.detail


def test_a_table_that_nobody_else_may_read(cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "LOCK_TIMEOUT", 1)
    sources = Sources.from_url(cell.url)
    (planned, *_more) = (repair for repair in _without_api(sources) if repair["repair"] == "free")
    postgres = cell.engine.dialect.name == "postgresql"
    with cell.engine.connect() as other:
        other.exec_driver_sql("LOCK TABLE pci_devices" if postgres else "LOCK TABLES pci_devices WRITE")
        release = threading.Timer(60, other.invalidate)
        release.start()
        with pytest.raises(databases.BusyError, match="a lock could not be had"):
            wanted(sources)
        (outcome,) = run(sources, tmp_path / "journal", [planned])
        release.cancel()
    assert outcome.result is ChangeResult.FAILED
    assert "a lock could not be had" in outcome.detail


def test_a_deadlock_with_nova(cell: CellFile, tmp_path: Path) -> None:
    """Both hold what the other wants next, and the database ends gpustack's transaction."""
    sources = Sources.from_url(cell.url)
    planned = [repair for repair in _without_api(sources) if repair["repair"] == "free" and repair["migrations"]]
    assert planned
    before, errors = cell.dump(), []
    locked, finished, asks = threading.Event(), threading.Event(), threading.Event()

    def nova() -> None:
        try:
            with cell.engine.connect() as connection:
                if connection.dialect.name == "postgresql":  # who waits longer than this is who looks for a deadlock
                    connection.exec_driver_sql("SET deadlock_timeout = '60s'")
                for table in ("services", "instances", "migrations"):  # MariaDB ends who has written less
                    connection.exec_driver_sql(f"UPDATE {table} SET updated_at = '2026-01-01'")
                locked.set()
                finished.wait(120)
                asks.set()
                connection.exec_driver_sql("UPDATE pci_devices SET updated_at = '2026-01-01'")
                connection.rollback()
        except BaseException as error:
            errors.append(error)

    def note_update(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        if text.startswith("UPDATE pci_devices") and threading.current_thread() is not nova_thread:
            finished.set()
            # PostgreSQL looks for a deadlock once, a second after gpustack begins to wait: Nova must wait by then.
            asks.wait(120)

    nova_thread = threading.Thread(target=nova)
    sa.event.listen(sa.Engine, "after_cursor_execute", note_update)
    try:
        nova_thread.start()
        assert locked.wait(120)
        (outcome,) = run(sources, tmp_path / "journal", planned)
    finally:
        finished.set()
        nova_thread.join(timeout=180)
        sa.event.remove(sa.Engine, "after_cursor_execute", note_update)
    assert not errors
    assert outcome.result is ChangeResult.FAILED
    assert "deadlock" in outcome.detail.lower()
    assert cell.dump() == before
    (retry,) = run(sources, tmp_path / "again", planned)
    assert retry.result is ChangeResult.DONE


def test_a_database_that_only_reads(cell: CellFile, tmp_path: Path) -> None:
    sources = Sources.from_url(user(cell, "SELECT"))
    planned = _without_api(sources)
    before = cell.dump()
    with pytest.raises(DatabaseError) as caught:
        run(sources, tmp_path / "journal", planned)
    assert "denied" in caught.value.what
    assert cell.dump() == before
    output = str(caught.value) + (tmp_path / "journal").read_text()
    assert PASSWORD not in output
    assert QUOTED not in output


def test_a_replica(cell: CellFile, tmp_path: Path) -> None:
    """A server that lets nobody write, as a replica does: a plan can be made there, and nothing is carried out."""
    reader = user(cell, "SELECT, UPDATE")
    postgres = cell.engine.dialect.name == "postgresql"
    on, off = (
        ("ALTER ROLE reader SET default_transaction_read_only = on", "ALTER ROLE reader RESET ALL")
        if postgres
        else ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0")
    )
    before = cell.dump()
    with cell.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(on)
        try:
            sources = Sources.from_url(reader)
            planned = _without_api(sources)
            assert planned
            with pytest.raises(DatabaseError) as caught:
                run(sources, tmp_path / "journal", planned)
        finally:
            connection.exec_driver_sql(off)
    assert "read-only" in caught.value.what
    assert cell.dump() == before


def test_a_connection_that_is_lost_on_the_way(cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cut(cell.engine.url.port) as cut:
        url = cell.engine.url.set(port=cut.port).render_as_string(hide_password=False)
        sources = Sources.from_url(url)
        planned, ask = _without_api(Sources.from_url(cell.url)), answering(Sources.from_url(cell.url))
        before = cell.dump()
        monkeypatch.setattr(apply, "PATIENCE", 0.0)
        for count in (0, 3_000, 20_000, 60_000):
            cut.after(count)
            with pytest.raises(DatabaseError) as caught:
                run(sources, tmp_path / f"journal-{count}", planned, ask)
            assert caught.value.where
        cut.after(None)
        for path in tmp_path.glob("journal-*"):
            list(undone(path, sources))
        assert undoable(cell) == undoable(cell, before)


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_answer_to_commit_that_is_lost(
    cell: CellFile, tmp_path: Path, carried_out: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows are read back on a new connection: the run goes on, and undo restores what was committed."""
    with Cut(cell.engine.url.port) as cut:
        url = cell.engine.url.set(port=cut.port).render_as_string(hide_password=False)
        sources, path, before = Sources.from_url(url), tmp_path / "journal", cell.dump()
        planned = [repair for repair in _without_api(sources) if repair["repair"] == "free"]
        cut.at_commit(carried_out=carried_out)
        first, *rest = run(sources, path, planned)
        assert first.result is (ChangeResult.DONE if carried_out else ChangeResult.FAILED), first.detail
        assert "the answer to COMMIT was lost" in first.detail
        assert {outcome.result for outcome in rest} == {ChangeResult.DONE}
        assert set(results(path)) == {ChangeResult.DONE, *(() if carried_out else (ChangeResult.FAILED,))}
        cut.at_commit(carried_out=carried_out)
        reverted = sorted(outcome.result for outcome in undone(path, sources))
        lost = [] if carried_out else [ChangeResult.FAILED, ChangeResult.UNCHANGED]
        assert reverted == sorted([*lost, *[ChangeResult.DONE] * (len(planned) - len(lost))])
        list(undone(path, sources))
        assert undoable(cell) == undoable(cell, before)


def test_a_server_that_stays_lost_at_commit(
    cell: CellFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The outcome is unknown: the run ends and names the journal, the check, and the repairs that were not begun."""
    monkeypatch.setattr(apply, "PATIENCE", 1.5)
    before = cell.dump()
    with Cut(cell.engine.url.port) as cut:
        url = cell.engine.url.set(port=cut.port).render_as_string(hide_password=False)
        path = tmp_path / "journal"
        cut.at_commit(carried_out=True, comes_back=False)
        command = ["cleanup", "apply", "--db-url", url, "--yes", "--no-hypervisor", "--class", "A", "--class", "C"]
        assert main([*command, "--journal", str(path)]) == DatabaseError.exit_code
        printed = capsys.readouterr()
        assert ": unknown: the answer to COMMIT was lost" in printed.err
        assert "whether it was committed is not known" in printed.err
        assert printed.err.count(": not begun: whether it was committed is not known") == 2
        assert f"to see what was carried out: gpustack undo {path} --check" in printed.err
        assert results(path) == [ChangeResult.UNKNOWN]
    assert cell.dump() != before
    undo_command = ["cleanup", "undo", str(path), "--db-url", cell.url]
    assert main([*undo_command, "--check"]) == 0
    assert "would be restored" in capsys.readouterr().err
    assert main([*undo_command, "--yes"]) == 0
    assert cell.dump() == before


class Cut:
    """A way to the server that ends after so many bytes, or at the first COMMIT after a repair's UPDATE."""

    def __init__(self, port: int | None) -> None:
        self._to = port
        self._left: int | None = None
        self._commit: tuple[bool, bool] | None = None
        self._updated = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Cut:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.close()

    def after(self, count: int | None) -> None:
        self._left = count

    def at_commit(self, *, carried_out: bool, comes_back: bool = True) -> None:
        self._commit, self._updated = (carried_out, comes_back), False

    def _ends_at_commit(self, data: bytes, sink: socket.socket) -> bool:
        """Whether the way ends here: after COMMIT has reached the server, or before."""
        self._updated |= b"UPDATE pci_devices" in data
        if self._commit is None or not self._updated or b"COMMIT" not in data:
            return False
        (carried_out, comes_back), self._commit = self._commit, None
        if not comes_back:
            self._left = -1
        if carried_out:
            sink.sendall(data)
            time.sleep(0.3)  # the answer arrives here, and goes no further
        return True

    def _serve(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            lost = threading.Event()
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, sink is server, lost), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, asks: bool, lost: threading.Event) -> None:
        try:
            while data := source.recv(4096):
                if asks and b"COMMIT" in data and self._commit is not None and self._updated:
                    lost.set()
                if (asks and self._ends_at_commit(data, sink)) or (lost.is_set() and not asks):
                    break
                if self._left is not None:
                    self._left -= len(data)
                    if self._left < 0:
                        break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def keep(cell: CellFile) -> Callable[[], None]:
    rows = cell.dump()

    def restore() -> None:
        with cell.engine.begin() as connection:
            for name, kept in rows.items():
                table = tables.metadata.tables[name]
                connection.execute(table.delete())
                if kept:
                    connection.execute(table.insert(), [dict(zip(table.c.keys(), row, strict=True)) for row in kept])

    return restore


@pytest.mark.parametrize("kind", REPAIRS if EACH_STEP else REPAIRS[:1], ids="-".join)
def test_a_run_is_killed_anywhere(url: sa.URL, tmp_path: Path, kind: tuple[str, Repair]) -> None:
    """The server ends the transaction of a process that is gone."""
    cell = CellFile(url.render_as_string(hide_password=False))
    repair_killed_anywhere(cell, silent_cell(cell, tmp_path), tmp_path, kind, keep, 1 if EACH_STEP else 8)


def test_an_undo_is_killed_anywhere(url: sa.URL, tmp_path: Path) -> None:
    cell = CellFile(url.render_as_string(hide_password=False))
    undo_killed_anywhere(cell, silent_cell(cell, tmp_path), tmp_path, keep, 1 if EACH_STEP else 3)


def test_only_the_handshake_has_a_time_limit(url: sa.URL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_options, "HANDSHAKE", 2)
    database = databases.database("cell1", url.render_as_string(hide_password=False))
    sleep = "pg_sleep" if url.get_backend_name() == "postgresql" else "SLEEP"
    with databases.snapshot(database) as connection:
        connection.exec_driver_sql(f"SELECT {sleep}(3)")


@pytest.mark.parametrize("action", ["plan", "apply"])
def test_no_password_is_ever_printed(cell: CellFile, tmp_path: Path, action: str) -> None:
    good = user(cell, "SELECT")
    rejected = good.replace(QUOTED, "wr0ng%40")
    for number, (url, secrets) in enumerate(((good, (PASSWORD, QUOTED)), (rejected, ("wr0ng@", "wr0ng%40")))):
        command = [sys.executable, "-m", "gpustack", "--debug", "cleanup", action]
        command += ["--yes", "--no-hypervisor", "--journal", str(tmp_path / str(number))] if action == "apply" else []
        process = subprocess.run(
            command, env={**os.environ, "GPUSTACK_DB_URL": url}, capture_output=True, text=True, check=False
        )
        files = "".join(path.read_text() for path in tmp_path.iterdir())
        for secret in secrets:
            assert secret not in process.stdout + process.stderr + files
        if url == rejected:
            assert process.returncode == 30
            assert "reader" in process.stderr


def test_no_password_is_seen_by_other_users(cell: CellFile, tmp_path: Path) -> None:
    """Neither by those of this machine (ps) nor by those of the server (SHOW PROCESSLIST)."""
    url = user(cell, "SELECT")
    command = [
        sys.executable,
        "-m",
        "gpustack",
        "cleanup",
        "watch",
        "--metrics",
        str(tmp_path / "prom"),
        "--interval",
        "1",
    ]
    process = subprocess.Popen(command, env={**os.environ, "GPUSTACK_DB_URL": url}, stderr=subprocess.PIPE)
    postgres = cell.engine.dialect.name == "postgresql"
    ask = "SELECT query FROM pg_stat_activity" if postgres else "SELECT info FROM information_schema.processlist"
    output = []
    try:
        with cell.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for _look in range(60):
                output += [str(row) for row in connection.exec_driver_sql(ask)]
                output.append(Path(f"/proc/{process.pid}/cmdline").read_text())
                time.sleep(0.05)
        assert process.poll() is None
    finally:
        process.terminate()
        output.append(process.communicate()[1].decode())
    assert "cleanup" in "".join(output)
    for secret in (PASSWORD, QUOTED):
        assert secret not in "".join(output)

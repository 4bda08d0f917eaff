"""Databases that are named wrongly: what is said, and that nothing comes of it."""

from __future__ import annotations

import json
import socket
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from gpustack.base import silence
from gpustack.base.errors import DatabaseError, NovaConfigError
from gpustack.cli.app import main
from gpustack.novadb import connection_options, databases, sources


def test_a_missing_sqlite_file_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nova.sqlite"
    assert main(["cleanup", "plan", "--db-url", f"sqlite:///{missing}"]) == DatabaseError.exit_code
    assert "there is no such database file" in capsys.readouterr().err
    assert not missing.exists()


@pytest.mark.parametrize(
    "password", ["p@ss", "@", "p@ss@word", "p@ss/w", "p@ss/w/ord", "p@ss?w", "p@s/s?w=o", "p@ss:w"]
)
def test_of_a_password_that_ends_the_url_early_nothing_is_shown(password: str) -> None:
    with pytest.raises(DatabaseError, match="percent-encoded") as raised:
        databases.database("cell1", f"mysql+pymysql://nova:{password}@db.example.org/nova")
    assert "ss" not in str(raised.value).replace("password", "")


def test_a_percent_encoded_password() -> None:
    database = databases.database("cell1", "mysql+pymysql://nova:p%40ss@db.example.org/nova")
    assert (database.url.password, database.url.host) == ("p@ss", "db.example.org")


def test_devstacks_connection() -> None:
    database = databases.database("cell1", "mysql+pymysql://root:x@127.0.0.1/nova_cell1?charset=utf8&plugin=dbcounter")
    assert dict(database.url.query) == {"charset": "utf8"}
    databases.engine(database)


SECRET = "s3cr3t"
TEMPLATE = "{scheme}://{username}:{password}@{hostname}:{port}/nova"


@pytest.mark.parametrize(
    "url",
    [
        f"mysql+pymysql://nova:{SECRET}@db:port/nova",
        f"mysql+pymysql://nova:{SECRET}@127.0.0.1:1/nova?ssl_mode=REQUIRED",
        f"mysql+pymysql://nova:{SECRET}@127.0.0.1:1/nova?ssl_ca=/nowhere/ca.pem",
        f"mysql+pymysql://nova:{SECRET}@127.0.0.1:1/nova?charset=nothing",
        f"mysql+pymysql://nova:{SECRET}@127.0.0.1:1/nova?read_timeout=soon",
        f"mysql+pymysql://nova@127.0.0.1:1/nova?password={SECRET}",
        f"postgresql:///nova?host=/nowhere&user=nova&password={SECRET}",
        f"postgresql://nova:{SECRET}@127.0.0.1:1/nova?nothing=1",
        f"postgresql://nova:{SECRET}@[::1]:1/nova",
        f"postgresql://nova:{SECRET}@[::1/nova",
        f"oracle://nova:{SECRET}@db/nova",
    ],
)
def test_a_connection_that_leads_nowhere(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A clear word, whatever is wrong with it, and never the password."""
    assert main(["--debug", "cleanup", "plan", "--db-url", url]) == DatabaseError.exit_code
    output = capsys.readouterr()
    assert SECRET not in output.out + output.err
    assert "fault of gpustack" not in output.err


@pytest.mark.parametrize("default", [f"mysql://nova:x/{SECRET}@db/nova", f"mysql://nova:{SECRET}[@db/nova"])
def test_a_template_that_can_not_be_filled_in(default: str) -> None:
    with pytest.raises(NovaConfigError, match="can't be filled in") as raised:
        sources.fill_template(TEMPLATE, default, "cell1")
    assert SECRET not in str(raised.value)
    with pytest.raises(NovaConfigError, match="can't be filled in") as raised:
        sources.fill_template(f"mysql://nova:{SECRET}@{{hostname}}/{{nothing}}", "mysql://nova@db/nova", "cell1")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("default", [None, "mysql://nova@db/nova"])
def test_braces_of_a_password_are_no_template(default: str | None) -> None:
    """Nova leaves a connection as it is that it can't fill in."""
    for password in ("{x}", "{", "}{", "{0}", "{}"):
        assert sources.fill_template(f"mysql://nova:{password}@db/nova", default, "cell1").endswith("@db/nova")


@pytest.mark.parametrize(
    ("template", "default", "filled"),
    [
        (TEMPLATE, "mysql+pymysql://n%40va:p%25@db:3306/api?charset=utf8", "mysql+pymysql://n%40va:p%25@db:3306/nova"),
        (
            "{scheme}://db/{path}_cell0?{query}",
            "mysql://nova@db/nova?charset=utf8",
            "mysql://db/nova_cell0?charset=utf8",
        ),
        ("mysql://nova@[{hostname}]/nova", "mysql://nova@[fd00::5]/nova", "mysql://nova@[fd00::5]/nova"),
    ],
)
def test_templates_as_nova_fills_them_in(template: str, default: str, filled: str) -> None:
    assert sources.fill_template(template, default, "cell1") == filled


def test_references_in_nova_conf(tmp_path: Path) -> None:
    """As oslo.config reads them: a dollar sign of a password is doubled."""
    (tmp_path / "nova.conf").write_text(
        "[DEFAULT]\nmy_ip = 192.0.2.7\nsecret = a$$b\n"
        "[api_database]\nconnection = mysql://nova:$secret\\$$$@$my_ip/api\n"
        "[database]\nconnection = mysql://nova:${DEFAULT.secret}@$nowhere/nova\n"
    )
    (tmp_path / "nova.conf.d").mkdir()
    (tmp_path / "nova.conf.d" / "ip.conf").write_text("[DEFAULT]\nmy_ip = 192.0.2.8\n")
    api, main_connection, _down = sources.from_nova_conf([tmp_path])
    assert (api.url.password, api.url.host) == ("a$b$$", "192.0.2.8")
    assert main_connection == "mysql://nova:a$b@$nowhere/nova"


def test_a_reference_to_itself(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[api_database]\nconnection = sqlite:///$connection\n")
    assert sources.from_nova_conf([tmp_path])[0].url.database is not None


def test_an_api_database_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sa.create_engine(f"sqlite:///{tmp_path}/other.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("CREATE TABLE pci_devices (id INTEGER)"))
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[api_database]\nconnection = sqlite:///{tmp_path}/other.sqlite\n")
    assert main(["cleanup", "plan", "--config-file", str(conf)]) == DatabaseError.exit_code
    assert "API database" in (printed := capsys.readouterr().err)
    assert "no Nova database" in printed


def test_a_damaged_plan_is_refused_before_any_database_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"verdicts": []}))
    assert main(["cleanup", "apply", str(plan), "--db-url", f"sqlite:///{tmp_path}/nothing.sqlite"]) != 0
    assert "no plan of gpustack cleanup" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["mysql+pymysql", "postgresql"])
def test_a_server_that_stays_silent_is_given_up(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts the connection, and nobody ever speaks."""
    monkeypatch.setattr(connection_options, "HANDSHAKE", 2)
    monkeypatch.setattr(silence, "_waited", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        database = databases.database("cell1", f"{scheme}://nova:x@127.0.0.1:{port}/nova")
        with pytest.raises(DatabaseError, match=r"timed out|timeout expired"), databases.snapshot(database):
            pass
    assert silence._waited > 1
    monkeypatch.setattr(silence, "_waited", silence.TOTAL)
    assert connection_options.arguments(database.url)["connect_timeout"] == 1


def test_the_urls_own_time_limits_are_kept() -> None:
    url = sa.make_url("mysql+pymysql://nova:x@db/nova?connect_timeout=3&read_timeout=60")
    assert connection_options.arguments(url) == {"local_infile": False}


@pytest.mark.parametrize(
    ("url", "secrets", "where"),
    [
        ("mysql://nova:1s3cr3t@db/nova?charset=utf8", ("1s3cr3t",), "mysql+pymysql://nova:***@db/nova?charset=utf8"),
        ("postgresql:///nova?password=2s3cr3t&sslmode=disable", ("2s3cr3t",), "postgresql+psycopg2:///nova"),
        (
            "postgresql:///nova?sslpassword=3s3cr3t&sslpassword=4s3cr3t",
            ("3s3cr3t", "4s3cr3t"),
            "postgresql+psycopg2:///nova",
        ),
        ("sqlite:///nova.sqlite", (), "sqlite:///nova.sqlite"),
    ],
)
def test_all_passwords_of_a_connection_are_known(url: str, secrets: tuple[str, ...], where: str) -> None:
    database = databases.database("cell1", url)
    assert database.where == f"cell1 ({where})"
    assert "s3cr3t" not in str(DatabaseError(f"refused {' '.join(secrets)}."))


def test_the_length_of_a_connection_is_limited() -> None:
    start = "sqlite:///"
    longest = start + "x" * (databases._MAX_URL - len(start))
    assert databases.database("cell1", longest).url.database
    with pytest.raises(DatabaseError, match="no database URL"):
        databases.database("cell1", longest + "x")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (Exception(1205, "Lock wait timeout exceeded"), databases.BusyError),
        (Exception(1213, "Deadlock found"), databases.BusyError),
        (Exception(1146, "Table doesn't exist"), DatabaseError),
        (sqlite3.OperationalError("database is locked"), DatabaseError),
        (Exception(), DatabaseError),
    ],
)
def test_only_locks_and_deadlocks_permit_a_new_attempt(cause: Exception, kind: type[DatabaseError]) -> None:
    database = databases.database("cell1", "mysql://nova:one@db/nova")
    error = databases.unreachable(database, sa.exc.OperationalError("SELECT 1", None, cause))
    assert type(error) is kind
    assert error.remedy.startswith("try it again when") is (kind is databases.BusyError)


@pytest.mark.parametrize("name", ["SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED"])
def test_locks_of_sqlite_permit_a_new_attempt(name: str) -> None:
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorname = name
    database = databases.database("cell1", "sqlite:///nova.sqlite")
    assert isinstance(databases.unreachable(database, sa.exc.OperationalError("", None, cause)), databases.BusyError)


def test_a_snapshot_of_sqlite_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "nova.sqlite"
    with sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("CREATE TABLE nodes (id INTEGER)"))
    database = databases.database("cell1", f"sqlite:///{path}")
    with pytest.raises(DatabaseError, match="readonly"), databases.snapshot(database) as connection:
        connection.execute(sa.text("INSERT INTO nodes VALUES (1)"))


def test_a_snapshot_sees_one_state(tmp_path: Path) -> None:
    path = tmp_path / "nova.sqlite"
    with sqlite3.connect(path) as other:
        other.executescript("PRAGMA journal_mode = WAL; CREATE TABLE nodes (id INTEGER);")
        query = sa.text("SELECT count(*) FROM nodes")
        with databases.snapshot(databases.database("cell1", f"sqlite:///{path}")) as connection:
            assert connection.scalar(query) == 0
            other.execute("INSERT INTO nodes VALUES (1)")
            other.commit()
            assert connection.scalar(query) == 0
    other.close()


def test_what_a_driver_can_not_use_is_an_error_of_the_database(tmp_path: Path) -> None:
    (tmp_path / "nova.sqlite").touch()
    database = databases.database("cell1", f"sqlite:///{tmp_path}/nova.sqlite")
    with pytest.raises(DatabaseError, match="not acceptable"), databases.snapshot(database) as connection:
        connection.execute(sa.text("SELECT :number"), {"number": 2**70})


def test_snapshots_on_one_connection_see_what_was_written_between(tmp_path: Path) -> None:
    path = tmp_path / "nova.sqlite"
    with sqlite3.connect(path) as writer:
        writer.execute("CREATE TABLE seen (number INTEGER)")
    known = databases.database("cell1", f"sqlite:///{path}")
    counts, connections = [], []
    with databases.reusing_connections():
        for _ in range(3):
            with databases.snapshot(known) as connection:
                connections.append(connection.connection.dbapi_connection)
                counts.append(connection.scalar(sa.text("SELECT count(*) FROM seen")))
                with pytest.raises(sa.exc.SQLAlchemyError, match="readonly"):
                    connection.execute(sa.text("INSERT INTO seen VALUES (1)"))
            with sqlite3.connect(path) as writer:
                writer.execute("INSERT INTO seen VALUES (1)")
    assert counts == [0, 1, 2]
    assert len(set(map(id, connections))) == 1


def test_nested_snapshots_of_one_database_are_two(tmp_path: Path) -> None:
    path = tmp_path / "nova.sqlite"
    sqlite3.connect(path).close()
    known = databases.database("cell1", f"sqlite:///{path}")
    with databases.reusing_connections(), databases.snapshot(known) as outer, databases.snapshot(known) as inner:
        assert outer.connection.dbapi_connection is not inner.connection.dbapi_connection


@pytest.mark.parametrize(("kind", "limits"), [("sqlite", 0), ("mysql", 1), ("postgresql", 1)])
def test_reading_waits_for_a_lock_as_long_as_writing(kind: str, limits: int) -> None:
    """The first statements of a snapshot; tests/nova/cleanup locks tables of real servers."""
    statements: list[str] = []
    connection = SimpleNamespace(dialect=SimpleNamespace(name=kind), exec_driver_sql=statements.append)
    databases._begin_reading(connection)  # type: ignore[arg-type]
    waits = [statement for statement in statements if "lock" in statement and str(databases.LOCK_TIMEOUT) in statement]
    assert len(waits) == limits
    assert not limits or statements.index(waits[0]) < 2

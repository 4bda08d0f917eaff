"""Rows of cell_mappings, and the servers that they lead to, in hostile hands."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError, NovaConfigError
from gpustack.base.known_secrets import forget, hidden, learn
from gpustack.novadb import databases, sources
from gpustack.novadb.databases import Database
from support.rogue_server import file_request, rogue_server

MINE = "the operator's own file"


@pytest.mark.parametrize("query", ["", "?local_infile=1"])
def test_a_rogue_server_receives_no_file(query: str, tmp_path: Path) -> None:
    secret = tmp_path / "id_ed25519"
    secret.write_text(MINE)
    with rogue_server(file_request(str(secret))) as rogue:
        # As a URL that has passed the allow-list by a fault of it.
        target = Database(
            name="cell c", url=sa.make_url(f"mysql+pymysql://nova:secret@127.0.0.1:{rogue.port}/nova{query}")
        )
        with pytest.raises(DatabaseError), databases.snapshot(target) as connection:
            connection.execute(sa.text("SELECT 1"))
    assert MINE.encode() not in b"".join(rogue.received)


def test_a_malformed_answer_is_a_database_error() -> None:
    with rogue_server(b"\xfe") as rogue:
        target = databases.database("cell c", f"mysql+pymysql://nova:secret@127.0.0.1:{rogue.port}/nova")
        with pytest.raises(DatabaseError), databases.snapshot(target):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "mysql+pymysql://nova:x@db/nova?local_infile=1",
        "mysql+pymysql://nova:x@db/nova?read_default_file=/root/.my.cnf",
        "mysql+pymysql://nova:x@db/nova?init_command=DROP+TABLE+instances",
        "mysql+pymysql://nova:x@db/nova?client_flag=128",
        "mysql+pymysql://nova:x@db/nova?charset=utf8&LOCAL_INFILE=1",
        "mysql+pymysql://nova:x@db/nova?collation=utf8mb4_bin,+GLOBAL+x=1",
        "postgresql://nova:x@db/nova?service=production",
        "postgresql://nova:x@db/nova?passfile=/root/.pgpass",
        "postgresql://nova:x@db/nova?dsn=x",
        "sqlite:////etc/passwd?uri=true&mode=rwc",
    ],
)
def test_other_options_are_refused(url: str) -> None:
    with pytest.raises(DatabaseError, match="does not pass to the"):
        databases.database("cell c", url)


@pytest.mark.parametrize(
    "url",
    [
        "mysql+pymysql://nova:x@db/nova?charset=utf8mb4&ssl_ca=/etc/ssl/ca.pem&connect_timeout=5&read_timeout=60",
        "mysql://root@localhost/nova?unix_socket=/run/mysqld/mysqld.sock",
        "postgresql://nova:x@db/nova?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem&connect_timeout=5",
        "postgresql:///nova?host=/run/postgresql&user=nova",
    ],
)
def test_options_of_the_way_to_a_server_are_accepted(url: str) -> None:
    assert databases.database("cell c", url).url.query == sa.make_url(url).query


@pytest.mark.parametrize("option", ["local_infile=1", "init_command=s3cr3t", "pass%1b[2J=s3cr3t"])
def test_a_row_with_a_refused_option_keeps_no_other_cell_from_being_read(option: str, tmp_path: Path) -> None:
    rows = {"a": f"mysql://nova:s3cr3t@db/nova?{option}", "b": "sqlite:////nova.sqlite", "c": None, "d": "{port"}
    with sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('b30f573d3377')"))
        connection.execute(sa.text("CREATE TABLE cell_mappings (uuid TEXT, name TEXT, database_connection TEXT)"))
        for name, url in rows.items():
            values = {"n": name, "u": url}
            connection.execute(sa.text("INSERT INTO cell_mappings VALUES (:n, :n, :u)"), values)
    problems = {
        cell.name: cell.database.problem
        for cell in sources.cells(databases.database("API", f"sqlite:///{tmp_path}/api.sqlite"), None)
    }
    assert sorted(problems) == ["a", "b", "c", "d"]
    assert problems["b"] is None
    assert "s3cr3t" not in str(problems["a"])
    assert "does not pass" in str(problems["a"])


@pytest.mark.parametrize(
    "template", ["{port:>999999999999}", "{username.__class__.__mro__}", "{password!r}", "{0}{port}"]
)
def test_templates_fill_in_names_only(template: str) -> None:
    with pytest.raises(NovaConfigError, match="can't be filled in"):
        sources.fill_template(template, "mysql://nova:s3cr3t@db:1/nova", "cell c")


@pytest.mark.parametrize(
    ("secret", "text", "printed"),
    [
        ("a", "a lock could not be had", "a lock could not be had"),
        ("a", "option 'a' is unknown", "option '***' is unknown"),
        ("refuse", "the server refused", "the server refused"),
        ("s3cr3t", "s3cr3t: s3cr3t@db, (s3cr3t)", "***: ***@db, (***)"),
        ("nova", "Access denied for user 'nova'@'db'", "Access denied for user 'nova'@'db'"),
        ("p+w[", "dsn p+w[ x", "dsn *** x"),
    ],
)
def test_secrets_are_hidden_and_other_words_are_not(secret: str, text: str, printed: str) -> None:
    learn(["nova", "db", {"password": secret}])
    assert hidden(text) == printed
    forget()

"""A row of ``cell_mappings`` is edited: it chooses no option of a connection, no file, no text without an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.errors import DatabaseError, NovaConfigError
from gpustack.novadb import databases, sources
from support.attacks import attacked, variants

DEFAULT = "mysql+pymysql://nova:s3cr3t@db.example:3306/nova?charset=utf8"
TEMPLATES = {
    "width": "mysql://{hostname:>100000}/nova",
    "conversion": "mysql://{hostname!r}/nova",
    "attribute": "mysql://{hostname.__class__}/nova",
    "index": "mysql://{username[0]}/nova",
    "unclosed": "mysql://{username",
    "missing": "mysql://{username}{nothing}/nova",
    "nested": "mysql://{hostname:{port}}/nova",
}
OPTIONS = {
    "local file": "mysql://u:p@h/nova?local_infile=1",
    "defaults file": "mysql://u:p@h/nova?read_default_file=/root/.my.cnf",
    "program": "mysql://u:p@h/nova?init_command=DROP%20TABLE%20x",
    "socket": "mysql://u:p@h/nova?unix_socket=/run/other.sock",
    "service": "postgresql://u:p@h/nova?service=x&passfile=/root/.pgpass",
}


def template(text: str, _directory: Path) -> None:
    with pytest.raises(NovaConfigError) as refusal:
        sources.fill_template(text, DEFAULT, "cell c")
    assert "s3cr3t" not in str(refusal.value)


def option(url: str, _directory: Path) -> None:
    try:
        accepted = databases.database("cell c", url)
    except DatabaseError:
        return
    assert not {"local_infile", "read_default_file", "init_command", "passfile", "service"} & accepted.url.query.keys()


def other_program(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("oracle://h/x", "mssql+pyodbc://h/x", "mysql+evil://h/x", "://", "x" * 100_000):
        try:
            database = databases.database("cell c", url)
        except DatabaseError:
            continue
        assert database.url.drivername == "mysql+pymysql"


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        **variants(template, TEMPLATES),
        **variants(option, OPTIONS),
        "driver": other_program,
    },
    {
        "gpustack.novadb.sources": {
            "gpustack.novadb.sources:_piece": lambda values, text, name, form, _: (
                text if name is None else f"{text}{format(values[name], form)}"
            )
        }
    },
)

"""The options of a connection: which are accepted, and when the time limit of the handshake ends."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.novadb.connection_options import accepted, arguments, unlimited


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("mysql+pymysql://db/nova", {"connect_timeout": 15, "read_timeout": 15, "local_infile": False}),
        ("mysql+pymysql://db/nova?read_timeout=60", {"connect_timeout": 15, "local_infile": False}),
        ("postgresql+psycopg2://db/nova", {"connect_timeout": 15}),
        ("sqlite:///nova.sqlite", {}),
    ],
)
def test_each_handshake_has_a_limit_and_no_server_reads_files(url: str, given: dict[str, object]) -> None:
    assert arguments(sa.make_url(url)) == given


@pytest.mark.parametrize(
    ("url", "left"),
    [
        ("mysql+pymysql://db/nova", None),
        ("mysql+pymysql://db/nova?read_timeout=60", 60),
        ("postgresql+psycopg2://db/nova", 60),
    ],
)
def test_a_statement_may_take_any_time_unless_the_url_limits_it(url: str, left: int | None) -> None:
    connection = SimpleNamespace(_read_timeout=60)
    unlimited(sa.make_url(url), connection)
    assert connection._read_timeout == left


OF_TRIPLEO = "read_default_file=/etc/my.cnf.d/tripleo.cnf&read_default_group=tripleo"


@pytest.mark.parametrize("options", [OF_TRIPLEO, "read_default_file=/etc/my.cnf", "read_default_group=client"])
def test_the_options_of_tripleo_and_rhoso_reach_the_driver(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the certificates; each connection and cell mapping of these clouds names it."""
    monkeypatch.setattr(os.path, "isfile", lambda path: str(path).startswith("/etc/my.cnf"))
    url = sa.make_url(f"mysql+pymysql://nova:secret@db/nova?{options}")
    assert accepted(url, "cell1") == url
    assert sa.create_engine(url).dialect.create_connect_args(url)[1].items() >= url.query.items()


@pytest.mark.parametrize(
    ("login", "options", "present"),
    [
        ("nova:secret@db", OF_TRIPLEO, False),
        ("nova@db", OF_TRIPLEO, True),  # the password would be the file's
        ("db", "read_default_group=client", True),
        ("nova:secret@", OF_TRIPLEO, True),
        ("nova:secret@db", "read_default_file=/root/.my.cnf", True),
        ("nova:secret@db", "read_default_file=/etc/my.cnf.d/../shadow", True),
        ("nova:secret@db", "read_default_file=/etc/my.cnf&read_default_file=/etc/shadow", True),
    ],
)
def test_no_other_file_and_no_login_of_a_file_is_read(
    login: str, options: str, present: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "isfile", lambda path: present)
    with pytest.raises(DatabaseError, match="has read_default_file, which gpustack does not pass"):
        accepted(sa.make_url(f"mysql+pymysql://{login}/nova?{options}"), "cell1")


def test_an_option_that_is_not_allowed_is_named_without_its_value() -> None:
    with pytest.raises(DatabaseError, match=f"the option '{'x' * 64}', which") as raised:
        accepted(sa.make_url(f"mysql+pymysql://db/nova?{'x' * 70}=s3cr3t&xyz=1"), "cell1")
    assert "s3cr3t" not in str(raised.value)
    assert "connect_timeout" in str(raised.value.remedy)

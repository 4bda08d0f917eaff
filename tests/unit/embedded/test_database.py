"""Accounts and programs of the database servers; they start in tests/nova/embedded/test_database.py."""

from __future__ import annotations

import os
import pwd
from types import SimpleNamespace

import pytest

from gpustack_demo.embedded import database
from gpustack_demo.embedded.database import DatabaseServer
from gpustack_demo.embedded.process import ServiceError


def _accounts(monkeypatch: pytest.MonkeyPatch, accounts: dict[str, tuple[int, int]]) -> None:
    def account(name: str) -> SimpleNamespace:
        uid, gid = accounts[name]
        return SimpleNamespace(pw_uid=uid, pw_gid=gid, pw_name=name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", account)


def test_nobody_runs_with_its_numeric_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's ``nobody`` has the group ``nogroup``; no group is called ``nobody``."""
    _accounts(monkeypatch, {"nobody": (65534, 65533)})
    assert database._unprivileged("mariadb") == (65534, 65533)


def test_account_of_the_server_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    _accounts(monkeypatch, {"nobody": (65534, 65533), "postgres": (101, 104)})
    assert database._unprivileged("postgresql") == (101, 104)


def test_no_account_is_one_error_with_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    _accounts(monkeypatch, {})
    with pytest.raises(ServiceError, match="none of these accounts exists: mysql, nobody"):
        database._unprivileged("mariadb")


def test_missing_programs_name_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database.shutil, "which", lambda name, path: None if name == "my_print_defaults" else name)
    with pytest.raises(ServiceError, match="my_print_defaults") as caught:
        DatabaseServer("mariadb").__enter__()
    assert caught.value.remedy == "apt-get install mariadb-server-core mariadb-client-core"

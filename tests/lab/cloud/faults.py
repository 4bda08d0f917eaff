"""Failures at exact moments: triggers in Nova's database, and hosts that lose their power."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

from ..machine import Machine
from .compute import UNIT, Compute
from .control_plane import ControlPlane
from .kept import SERVICE_SECONDS

HANG_SECONDS = 60
COPY_SECONDS = 3600


@contextlib.contextmanager
def one_write_fails(plane: ControlPlane, table: str, condition: str) -> Iterator[None]:
    """Let the first update of a table of the cell fail whose row (NEW, OLD) meets the condition."""
    # Not part of the transaction that fails.
    plane.sql("CREATE TABLE nova_cell1.lab_failed (id INT) ENGINE = Aria TRANSACTIONAL = 0")
    body = (
        f"IF {condition} AND NOT EXISTS (SELECT id FROM nova_cell1.lab_failed) THEN"
        " INSERT INTO nova_cell1.lab_failed VALUES (1);"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'fault of the lab'; END IF"
    )
    try:
        with _trigger(plane, "UPDATE", table, body):
            yield
    finally:
        plane.sql("DROP TABLE nova_cell1.lab_failed")


@contextlib.contextmanager
def inserts_hang(plane: ControlPlane, table: str, condition: str) -> Iterator[None]:
    """Let inserts of a table of the cell wait a minute whose row (NEW) meets the condition."""
    with _trigger(plane, "INSERT", table, f"IF {condition} THEN DO SLEEP({HANG_SECONDS}); END IF"):
        yield


@contextlib.contextmanager
def _trigger(plane: ControlPlane, event: str, table: str, body: str) -> Iterator[None]:
    plane.sql(f"CREATE TRIGGER nova_cell1.lab BEFORE {event} ON nova_cell1.{table} FOR EACH ROW {body}")
    try:
        yield
    finally:
        plane.sql("DROP TRIGGER nova_cell1.lab")


@contextlib.contextmanager
def no_ssh_from(host: Machine) -> Iterator[None]:
    """Let each connection from this host to another one fail."""
    with _ssh_config(host, " ProxyCommand false"):
        yield


@contextlib.contextmanager
def copies_hang_from(host: Machine) -> Iterator[None]:
    """Let each copy of a disk from this host to another one wait; other connections work. Survives a power cut."""
    waits = f'Match host 10.0.2.* exec "pgrep -x scp >/dev/null"\n ProxyCommand sleep {COPY_SECONDS}'
    with _ssh_config(host, waits):
        yield


@contextlib.contextmanager
def _ssh_config(host: Machine, lines: str) -> Iterator[None]:
    options = "/root/.ssh/config"
    host.ssh(["sh", "-c", f"cp -p {options} {options}.sound; cat >>{options}; sync"], stdin=f"{lines}\n")
    try:
        yield
    finally:
        host.ssh(["mv", f"{options}.sound", options])


def copies(host: Machine) -> bool | None:
    """True when the host copies a disk to another one."""
    return bool(host.ssh(["pgrep", "-x", "scp"], check=False)) or None


def hangs(plane: ControlPlane) -> bool | None:
    """True when a statement waits in a trigger."""
    return bool(plane.sql("SELECT id FROM information_schema.processlist WHERE state = 'User sleep'")) or None


def restore_power(compute: Compute) -> None:
    """A host that lost its power boots from its disk, and starts nova-compute; wait until it reports."""
    since = datetime.now(UTC)
    compute.host.power_on()
    compute.host.wait_ssh()
    compute.host.ssh(["systemctl", "start", UNIT])  # nova.yml has only started it
    compute.wait(f"nova-compute of {compute.host.name}", lambda: compute.up(since), seconds=SERVICE_SECONDS)

"""Databases with their schema, created once for each environment and copied for every run.

Four SQLite files: ``api`` and ``main`` (a Nova cell; cell0 has the same schema), ``placement`` and ``keystone``. They
use WAL mode, so that a reader (``gpustack cleanup plan``) and Nova do not block each other.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

from gpustack_demo.embedded.environment import Environment, Report, locked
from gpustack_demo.embedded.process import ServiceError, tail

_NOVA = """
[DEFAULT]
transport_url = fake:///
[api_database]
connection = sqlite:///{directory}/api.sqlite
[database]
connection = sqlite:///{directory}/main.sqlite
"""
_PLACEMENT = """
[placement_database]
connection = sqlite:///{directory}/placement.sqlite
"""
_KEYSTONE = """
[database]
connection = sqlite:///{directory}/keystone.sqlite
"""
_COMMANDS = (
    ("nova", _NOVA, ("nova-manage", "api_db", "sync")),
    ("nova", _NOVA, ("nova-manage", "db", "sync", "--local_cell")),
    ("placement", _PLACEMENT, ("placement-manage", "db", "sync")),
    ("keystone", _KEYSTONE, ("keystone-manage", "db_sync")),
)
_NAMES = ("api", "main", "placement", "keystone")


def ensure_templates(environment: Environment, *, report: Report = lambda text: None) -> Path:
    """The directory of the database files for ``environment``, created if needed.

    :raises GpustackError: with the end of its output, when a command of a service fails.
    """
    directory = environment.path / "gpustack-databases"
    with locked(environment.path.parent / f"{environment.path.name}.lock"):
        if not directory.is_dir():
            began = time.monotonic()
            report(f"OpenStack {environment.release.name}: making its databases")
            _make(environment, directory)
            report(f"OpenStack {environment.release.name}: databases made in {time.monotonic() - began:.0f} s")
    return directory


def _make(environment: Environment, directory: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=environment.path, prefix=".databases-"))
    try:
        log = work / "log"
        for service, text, command in _COMMANDS:
            config = work / f"{service}.conf"
            config.write_text(text.format(directory=work), encoding="utf-8")
            _run(environment, [str(environment.program(command[0])), "--config-file", str(config), *command[1:]], log)
        for name in _NAMES:
            with contextlib.closing(sqlite3.connect(work / f"{name}.sqlite")) as database:
                database.execute("PRAGMA journal_mode = WAL")
        work.rename(directory)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _run(environment: Environment, command: list[str], log: Path) -> None:
    error_stream, variables = subprocess.STDOUT, environment.variables()
    with log.open("ab") as output:
        process = subprocess.run(
            command, stdout=output, stderr=error_stream, env=variables, cwd=log.parent, check=False
        )
    if process.returncode:
        raise ServiceError(f"{' '.join(command)} failed with exit code {process.returncode}:\n{tail(log)}")


def copy_template(environment: Environment, name: str, to: Path) -> None:
    """Copy the template of database ``name`` (``api``, ``main``, ``placement``, ``keystone``) to ``to``.

    :raises GpustackError: when the templates did not exist and could not be created.
    """
    shutil.copyfile(ensure_templates(environment) / f"{name}.sqlite", to)
    to.chmod(0o600)

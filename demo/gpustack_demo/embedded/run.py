"""Common parts of both clouds: a directory, child processes, and clients that connect to them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gpustack_demo.embedded.environment import Environment, Report, ensure
from gpustack_demo.embedded.templates import ensure_templates

if TYPE_CHECKING:
    import openstack.connection

NAME = "embedded"
"""The cloud's name in clouds.yaml."""


class RunningCloud:
    """A cloud that runs until the context ends; its files are then removed.

    :param release: ``2025.2``, …
    :param directory: keeps configuration, databases and logs there (must not exist), instead of a temporary directory.
    :param report: called before long steps (installing).
    """

    environment: Environment
    directory: Path

    def __init__(self, release: str, *, directory: Path | None = None, report: Report = lambda text: None) -> None:
        self.release = release
        self._keep = directory
        self._report = report
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start everything.

        :raises GpustackError: with the end of its log, when a service does not start.
        """
        self.environment = ensure(self.release, report=self._report)
        ensure_templates(self.environment, report=self._report)
        with self._exit:
            self.directory = self._make_directory()
            self._start()
            self._hold_databases()
            self._exit = self._exit.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._exit.close()

    def _make_directory(self) -> Path:
        if self._keep is not None:
            self._keep.mkdir(mode=0o700, parents=True)
            return self._keep.absolute()
        directory = Path(tempfile.mkdtemp(prefix=f"gpustack-{self.release}-"))
        self._exit.callback(shutil.rmtree, directory, ignore_errors=True)
        return directory

    def _hold_databases(self) -> None:
        """Keep a connection to each SQLite file: otherwise SQLite removes and creates its WAL with each request."""
        for path in self.directory.rglob("*.sqlite"):
            connection = sqlite3.connect(path, check_same_thread=False)
            self._exit.callback(connection.close)
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()

    def _start(self) -> None:
        raise NotImplementedError

    @property
    def clouds_yaml(self) -> Path:
        """The client configuration, with one cloud called ``embedded``. Mode 0600."""
        return self.directory / "clouds.yaml"

    def variables(self) -> dict[str, str]:
        """Environment variables with which any OpenStack client connects to this cloud."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        return {**inherited, "OS_CLIENT_CONFIG_FILE": str(self.clouds_yaml), "OS_CLOUD": NAME}

    def connection(self, **options: str) -> openstack.connection.Connection:
        """An openstacksdk connection; the caller closes it (it is a context manager)."""
        import openstack
        from openstack.config import loader

        files = [str(self.clouds_yaml)]
        config = loader.OpenStackConfig(config_files=files, secure_files=[], vendor_files=[], load_envvars=False)
        return openstack.connection.Connection(config=config.get_one(NAME, True, None, **options))

    def openstack(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the release's own ``openstack`` command.

        :raises subprocess.CalledProcessError: when it fails and ``check`` is set.
        """
        variables = {**self.environment.variables(), **_client_only(self.variables())}
        command = [str(self.environment.program("openstack")), *arguments]
        return run_captured(command, variables, check=check)


def run_captured(command: list[str], variables: Mapping[str, str], *, check: bool) -> subprocess.CompletedProcess[str]:
    """Run a program without input and capture its output.

    :raises subprocess.CalledProcessError: when it fails and ``check`` is set.
    """
    null = subprocess.DEVNULL
    return subprocess.run(command, capture_output=True, text=True, env=dict(variables), check=check, stdin=null)


def _client_only(variables: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in variables.items() if key.startswith("OS_")}

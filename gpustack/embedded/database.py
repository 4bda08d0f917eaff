"""A MariaDB or PostgreSQL server of one's own, on a loopback port and a temporary data directory.

>>> with DatabaseServer("mariadb") as server, Nova("2025.2", database=server.url) as nova: ...

The programs are those of the distribution's packages; nothing of the system's own server is touched.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gpustack.embedded.process import Service, ServiceError, free_port
from gpustack.errors import UsageError
from gpustack.files import write_atomic

KINDS = ("mariadb", "postgresql")
_SECONDS = 60.0
_USER = "nova"


def _programs() -> str:
    """A search path that has the servers: Debian and RHEL keep them out of the ordinary one."""
    postgres = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec", *map(str, postgres)])


def find(kind: str) -> bool:
    """Whether the programs of ``kind`` (``mariadb``, ``postgresql``) are installed."""
    needed = {"mariadb": ("mariadbd", "mariadb-install-db"), "postgresql": ("initdb", "postgres")}[kind]
    return all(shutil.which(name, path=_programs()) for name in needed)


class DatabaseServer:
    """One server, as a context manager; :attr:`url` is what SQLAlchemy needs to reach it."""

    url: str

    def __init__(self, kind: str) -> None:
        if kind not in KINDS:
            raise UsageError(f"no database server of kind {kind}", remedy=f"name one of: {', '.join(KINDS)}")
        self._kind = kind
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Make the data directory and start the server.

        :raises ServiceError: when it does not start.
        """
        if not find(self._kind):
            raise ServiceError(
                f"{self._kind} is not installed", remedy=f"install the package of the {self._kind} server"
            )
        with self._exit:
            directory = Path(tempfile.mkdtemp(prefix=f"gpustack-{self._kind}-"))
            self._exit.callback(shutil.rmtree, directory, ignore_errors=True)
            self._account = self._unprivileged(directory)
            port = free_port()
            (self._mariadb if self._kind == "mariadb" else self._postgresql)(directory, port)
            self._exit = self._exit.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; its data are gone."""
        self._exit.close()

    def _unprivileged(self, directory: Path) -> str | None:
        """The account to run under when this is root, which the servers refuse."""
        if os.geteuid() != 0:
            return None
        name = {"mariadb": "mysql", "postgresql": "postgres"}[self._kind]
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            account = pwd.getpwnam("nobody")
        os.chown(directory, account.pw_uid, account.pw_gid)
        return account.pw_name

    def _secret(self, path: Path, text: str) -> None:
        write_atomic(path, text, mode=0o600)
        if self._account:
            shutil.chown(path, self._account)

    def _mariadb(self, directory: Path, port: int) -> None:
        password = secrets.token_urlsafe(12)
        data, socket = directory / "data", directory / "socket"
        self._run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"])
        init = directory / "init.sql"
        account = f"'{_USER}'@'127.0.0.1'"
        self._secret(
            init,
            f"CREATE USER {account} IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
        )
        server = [
            *("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--bind-address=127.0.0.1"),
            *(f"--port={port}", f"--init-file={init}", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"),
        ]
        self._serve(server, directory, port)
        self.url = f"mysql+pymysql://{_USER}:{password}@127.0.0.1:{port}/"

    def _postgresql(self, directory: Path, port: int) -> None:
        password = secrets.token_urlsafe(12)
        data, file = directory / "data", directory / "password"
        self._secret(file, password)
        access = ("-U", _USER, "-A", "scram-sha-256", f"--pwfile={file}")
        self._run(["initdb", "-D", str(data), *access, "-E", "UTF8", "--locale=C", "--no-sync"])
        options = {"unix_socket_directories": directory, "fsync": "off", "max_connections": 300}
        given = [f"--{name}={value}" for name, value in options.items()]
        server = ["postgres", "-D", str(data), "-p", str(port), "--listen_addresses=127.0.0.1", *given]
        self._serve(server, directory, port)
        self.url = f"postgresql+psycopg2://{_USER}:{password}@127.0.0.1:{port}/"

    def _run(self, command: Sequence[str]) -> None:
        done = subprocess.run(self._as_account(command), capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServiceError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _serve(self, command: Sequence[str], directory: Path, port: int) -> None:
        service = Service(
            self._kind, self._as_account(command), log=directory / "log", environment=dict(os.environ), cwd=Path("/")
        )
        self._exit.callback(service.stop)
        service.wait_for_port(port, seconds=_SECONDS)

    def _as_account(self, command: Sequence[str]) -> list[str]:
        full = [shutil.which(command[0], path=_programs()) or command[0], *command[1:]]
        if self._account is None:
            return full
        return ["setpriv", f"--reuid={self._account}", f"--regid={self._account}", "--clear-groups", *full]

"""A private MariaDB or PostgreSQL server on a loopback port with a temporary data directory.

>>> with DatabaseServer("mariadb") as server, EmbeddedNova("2025.2", database=server.url) as nova: ...

The programs are those of the distribution's packages; the system's own server is not touched.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gpustack.base.errors import UsageError
from gpustack.base.files import write_atomic
from gpustack_demo.embedded.process import ServiceError, ServiceProcess, free_port

KINDS = ("mariadb", "postgresql")
# Debian has my_print_defaults, which mariadb-install-db runs, in a separate package.
_NEEDED = {"mariadb": ("mariadbd", "mariadb-install-db", "my_print_defaults"), "postgresql": ("initdb", "postgres")}
_PACKAGES = {"mariadb": "mariadb-server-core mariadb-client-core", "postgresql": "postgresql"}
_READY = {"mariadb": "ready for connections", "postgresql": "ready to accept connections"}
"""A server logs this when it answers. Its port accepts connections earlier, but PostgreSQL refuses these sessions."""
_SECONDS = 120.0
_USER = "nova"


def _programs() -> str:
    """A search path with the servers: Debian and RHEL install them outside of the usual one."""
    postgres = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec", *map(str, postgres)])


def find(kind: str) -> bool:
    """Whether the programs of ``kind`` (``mariadb``, ``postgresql``) are installed."""
    return all(shutil.which(name, path=_programs()) for name in _NEEDED[kind])


class DatabaseServer:
    """One server, as a context manager; :attr:`url` is its SQLAlchemy URL.

    :param data: start with a copy of this directory, which :meth:`keep` wrote (MariaDB only).
    """

    url: str

    def __init__(self, kind: str, *, data: Path | None = None) -> None:
        if kind not in KINDS:
            raise UsageError(f"no database server of kind {kind}", remedy=f"name one of: {', '.join(KINDS)}")
        self._kind = kind
        self._data = data
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Create the data directory and start the server.

        :raises ServiceError: when it does not start.
        """
        if not find(self._kind):
            raise ServiceError(
                f"the programs of {self._kind} are not installed: {', '.join(_NEEDED[self._kind])}",
                remedy=f"apt-get install {_PACKAGES[self._kind]}",
            )
        with self._exit:
            directory = Path(tempfile.mkdtemp(prefix=f"gpustack-{self._kind}-"))
            self._exit.callback(shutil.rmtree, directory, ignore_errors=True)
            self._account = _unprivileged(self._kind)
            # Temporary tables of two servers that initialise concurrently have the same names.
            self._temporary = directory / "tmp"
            self._temporary.mkdir(mode=0o700)
            self._hand_over(directory, self._temporary)
            port = free_port()
            (self._mariadb if self._kind == "mariadb" else self._postgresql)(directory, port)
            self._exit = self._exit.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; its data are removed."""
        self._exit.close()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._service.pid

    def keep(self, directory: Path) -> None:
        """Stop the server and copy its data directory."""
        self._service.stop(seconds=_SECONDS)
        shutil.copytree(self._data_directory, directory)

    def _hand_over(self, *paths: Path) -> None:
        if self._account:
            for path in paths:
                os.chown(path, *self._account)

    def _secret(self, path: Path, text: str) -> None:
        write_atomic(path, text, mode=0o600)
        self._hand_over(path)

    def _mariadb(self, directory: Path, port: int) -> None:
        password = secrets.token_urlsafe(12)
        data = self._data_directory = directory / "data"
        if self._data is None:
            # --force: it does not need to resolve this machine's name.
            self._run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db", "--force"])
        else:
            shutil.copytree(self._data, data)
            self._hand_over(data, *data.rglob("*"))
        init = directory / "init.sql"
        account = f"'{_USER}'@'127.0.0.1'"
        self._secret(
            init,
            f"CREATE OR REPLACE USER {account} IDENTIFIED BY '{password}';\n"
            f"GRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
        )
        server = [
            *("mariadbd", "--no-defaults", f"--datadir={data}", "--socket=socket", "--bind-address=127.0.0.1"),
            *(f"--port={port}", f"--init-file={init}", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"),
            "--skip-ssl",  # a loopback port; since 11.4, the server makes itself a certificate
        ]
        self._serve(server, directory)
        self.url = f"mysql+pymysql://{_USER}:{password}@127.0.0.1:{port}/"

    def _postgresql(self, directory: Path, port: int) -> None:
        password = secrets.token_urlsafe(12)
        data, file = directory / "data", directory / "password"
        self._secret(file, password)
        access = ("-U", _USER, "-A", "scram-sha-256", f"--pwfile={file}")
        self._run(["initdb", "-D", str(data), *access, "-E", "UTF8", "--locale=C", "--no-sync"])
        options = {"unix_socket_directories": "", "fsync": "off", "max_connections": 300}
        settings = [f"--{name}={value}" for name, value in options.items()]
        server = ["postgres", "-D", str(data), "-p", str(port), "--listen_addresses=127.0.0.1", *settings]
        self._serve(server, directory)
        self.url = f"postgresql+psycopg2://{_USER}:{password}@127.0.0.1:{port}/"

    def _run(self, command: Sequence[str]) -> None:
        process = subprocess.run(
            self._as_account(command), env=self._environment(), cwd="/", capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise ServiceError(f"{command[0]} failed:\n{process.stdout[-2000:]}{process.stderr[-2000:]}")

    def _serve(self, command: Sequence[str], directory: Path) -> None:
        log, environment = directory / "log", self._environment()
        # In the main thread: the kernel ends the server when the thread that started it ends.
        bound = threading.current_thread() is threading.main_thread()
        full = self._as_account(command, *(("--pdeathsig", "KILL") if bound else ()))
        self._service = ServiceProcess(self._kind, full, log=log, environment=environment, cwd=Path("/"))
        self._exit.callback(self._service.stop)
        self._service.wait_for_text(_READY[self._kind], seconds=_SECONDS)

    def _as_account(self, command: Sequence[str], *options: str) -> list[str]:
        full = [shutil.which(command[0], path=_programs()) or command[0], *command[1:]]
        if self._account:
            uid, gid = self._account
            options = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *options)
        return ["setpriv", *options, *full] if options else full

    def _environment(self) -> dict[str, str]:
        """This process's environment, with a directory for temporary files that the account can write."""
        return {**os.environ, "TMPDIR": str(self._temporary)}


def _unprivileged(kind: str) -> tuple[int, int] | None:
    """The user and group for the server if this process is root, which the servers refuse.

    They are numbers, since the group of ``nobody`` may have another name.
    """
    if os.geteuid() != 0:
        return None
    names = ({"mariadb": "mysql", "postgresql": "postgres"}[kind], "nobody")
    for name in names:
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            return account.pw_uid, account.pw_gid
    raise ServiceError(
        f"{kind} does not run as root, and none of these accounts exists: {', '.join(names)}",
        remedy=f"adduser --system {names[0]}",
    )

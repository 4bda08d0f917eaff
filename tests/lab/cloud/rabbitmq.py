"""RabbitMQ from Debian's package, as a private server on loopback with data of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.process import ServiceProcess, free_port

from .prerequisites import RABBITMQ

_SECONDS = 180.0
_USER = "nova"
# One scheduler that sleeps when there is nothing to do; the port for other Erlang nodes on loopback too.
_ERLANG = "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"


class RabbitMQ:
    """One server, as a context manager; `ready` waits for it."""

    def __init__(self, directory: Path, *, port: int, password: str) -> None:
        self._directory = directory
        self._port = port
        self._password = password
        self._exit = contextlib.ExitStack()

    def url(self, address: str = "127.0.0.1", port: int | None = None) -> str:
        """The `transport_url` of services that reach the server by this address and port."""
        return f"rabbit://{_USER}:{self._password}@{address}:{port or self._port}/"

    def __enter__(self) -> Self:
        with self._exit:
            self._directory.mkdir(mode=0o700, parents=True)
            names = free_port()
            variables = self._variables(names)
            # Erlang's daemon of node names: the server would start one that outlives it.
            epmd = [shutil.which("epmd") or "epmd", "-address", "127.0.0.1", "-port", str(names)]
            self._start("epmd", epmd, variables).wait_for_port(names, seconds=_SECONDS)
            self._server = self._start("RabbitMQ", [str(RABBITMQ)], variables)
            self._exit = self._exit.pop_all()
        return self

    def ready(self) -> None:
        """Wait until clients can connect."""
        self._server.wait_for_port(self._port, seconds=_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def _start(self, name: str, command: list[str], variables: dict[str, str]) -> ServiceProcess:
        log = self._directory / f"{name.lower()}.log"
        command = ["setpriv", "--pdeathsig", "KILL", *command]
        service = ServiceProcess(name, command, log=log, environment=variables, cwd=self._directory)
        self._exit.callback(service.stop)
        return service

    def _variables(self, names: int) -> dict[str, str]:
        home = self._directory
        config = home / "rabbitmq.conf"
        write_atomic(
            config,
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\ndefault_user = {_USER}\ndefault_pass = {self._password}\n",
            mode=0o600,
        )
        write_atomic(home / "plugins", "[].\n", mode=0o600)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
        return {
            **inherited,
            "HOME": str(home),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            # The script becomes the server instead of its parent: one process to stop.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_NODENAME": f"lab{self._port}@localhost",
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
        }

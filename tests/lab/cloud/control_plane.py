"""Keystone, Placement, Glance, Nova's API, scheduler and conductor, and a stub of Neutron: one process each.

All listen on loopback, on free ports, keep their data on MariaDB, and Nova's services talk through RabbitMQ.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.database import DatabaseServer
from gpustack_demo.embedded.environment import Report
from gpustack_demo.embedded.glance import SETTINGS as GLANCE
from gpustack_demo.embedded.glance import ensure_glance
from gpustack_demo.embedded.identity import clouds_with_keystone, inside_command, start_keystone, write_clouds
from gpustack_demo.embedded.process import ServiceProcess, free_port, tail
from gpustack_demo.embedded.run import RunningCloud

from ..errors import LabError
from . import settings
from .rabbitmq import RabbitMQ

RELEASE = "2025.2"
_DATABASES = ("glance", "keystone", "nova_api", "nova_cell0", "nova_cell1", "placement")
_INSIDE = Path(__file__).with_name("inside")
_PATHS = {"identity": "/v3", "compute": "/v2.1", "placement": "", "image": "", "network": ""}
_MESSAGES = "messages"
_DATA = "mariadb"
_IMAGES = "images"
_DROP_INS = "nova.conf.d"
_PASSWORD = "password"
_SECONDS = 300.0
_SQL = "import pymysql, sys; from sqlalchemy.engine import make_url as url; u = url(sys.argv[1]); "
_SQL += "c = pymysql.connect(host=u.host, port=u.port, user=u.username, password=u.password, autocommit=True); "
_SQL += "k = c.cursor(); k.execute(sys.argv[2]); print(__import__('json').dumps(k.fetchall(), default=str))"


class ControlPlane(RunningCloud):
    """The services, as a context manager. Those of Nova start with :meth:`start_nova`: they read aliases at start.

    With `kept`, a directory of :meth:`keep`, the cloud continues with that one's databases, images and password, on
    other ports.
    """

    def __init__(self, *, directory: Path, report: Report, kept: Path | None = None) -> None:
        super().__init__(RELEASE, directory=directory, report=report)
        self.password = (kept / _PASSWORD).read_text() if kept else secrets.token_urlsafe(16)
        self.ports = {kind: free_port() for kind in (*_PATHS, _MESSAGES)}
        self._kept = kept
        self.started = datetime.now(UTC)
        self._services: list[ServiceProcess] = []

    @property
    def nova_conf(self) -> Path:
        """The nova.conf of API, scheduler and conductor; its drop-ins are in `nova.conf.d` beside it."""
        return self.directory / "nova" / "nova.conf"

    def _start(self) -> None:
        data = self._kept / _DATA if self._kept else None
        self._server = self._exit.enter_context(DatabaseServer("mariadb", data=data))
        self._database = self._server.url
        self._glance_packages = ensure_glance(self.environment, report=self._report)
        self.rabbitmq = self._exit.enter_context(
            RabbitMQ(self.directory / "rabbitmq", port=self.ports[_MESSAGES], password=self.password)
        )
        if self._kept:
            self._readdress()
        else:
            for name in _DATABASES:
                self.sql(f"CREATE DATABASE {name} CHARACTER SET utf8")
        catalog = {kind: f"http://127.0.0.1:{self.ports[kind]}{path}" for kind, path in _PATHS.items()}
        services = {
            "identity": start_keystone(
                self.environment,
                self.directory / "keystone",
                port=self.ports["identity"],
                password=self.password,
                catalog=catalog,
                database=f"{self._database}keystone",
            )
        }
        self._exit.callback(services["identity"].stop)
        self._services.append(services["identity"])
        services |= {"placement": self._placement(), "image": self._glance(), "network": self._neutron()}
        self._nova_databases()
        for kind, service in services.items():
            service.wait_for_port(self.ports[kind], seconds=_SECONDS)
        self.rabbitmq.ready()
        write_clouds(self.clouds_yaml, clouds_with_keystone(self.ports["identity"], self.password))

    def check(self) -> None:
        """Raise ServiceError, with the end of its log, when a service has ended."""
        for service in self._services:
            service.check()

    def sql(self, statement: str) -> list[list[object]]:
        """The rows that a statement returns."""
        python = str(self.environment.program("python"))
        output = self._output([python, "-c", _SQL, self._database, statement])
        rows: list[list[object]] = json.loads(output)
        return rows

    def start_nova(self, drop_ins: Mapping[str, str]) -> None:
        """Start API, scheduler and conductor with drop-ins of nova.conf, by name; wait for the API."""
        directory = self.nova_conf.parent / _DROP_INS
        directory.mkdir()
        for name, text in drop_ins.items():
            write_atomic(directory / name, text, mode=0o600)
        files = ["--config-file", str(self.nova_conf), "--config-dir", str(directory)]
        for name in ("nova-conductor", "nova-scheduler"):
            self._run(name, [str(self.environment.program(name)), *files], self.nova_conf.parent)
        paste = self.environment.path / "etc" / "nova" / "api-paste.ini"
        (self.nova_conf.parent / "api-paste.ini").symlink_to(paste)
        # Without eventlet, since the server that calls it has native threads.
        variables = {"OS_NOVA_CONFIG_DIR": str(self.nova_conf.parent), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"}
        service = self._serve("compute", "nova.wsgi.osapi_compute", self.nova_conf.parent, variables, files)
        service.wait_for_port(self.ports["compute"], seconds=_SECONDS)

    def keep(self, directory: Path) -> None:
        """Stop everything, and copy what a cloud continues from: databases, images, Nova's drop-ins, password."""
        for service in self._services:
            service.stop()
        self._server.keep(directory / _DATA)
        shutil.copytree(self.directory / "glance" / _IMAGES, directory / _IMAGES)
        shutil.copytree(self.nova_conf.parent / _DROP_INS, directory / _DROP_INS)
        write_atomic(directory / _PASSWORD, self.password, mode=0o600)

    def continue_nova(self) -> None:
        """Start Nova with the drop-ins that were kept."""
        assert self._kept is not None
        self.start_nova({path.name: path.read_text() for path in (self._kept / _DROP_INS).iterdir()})

    def _readdress(self) -> None:
        """Replace ports and directories of the cloud that was kept; Keystone creates its catalog when it starts."""
        images = f"file://{self.directory}/glance/{_IMAGES}/"
        cells = "UPDATE nova_api.cell_mappings SET database_connection"
        for statement in (
            "DELETE FROM keystone.endpoint",
            "DELETE FROM keystone.service",
            f"UPDATE glance.image_locations SET value = CONCAT('{images}', image_id)",
            f"{cells} = '{self._database}nova_cell0' WHERE name = 'cell0'",
            f"{cells} = '{self._database}nova_cell1', transport_url = '{self.rabbitmq.url()}' WHERE name = 'cell1'",
        ):
            self.sql(statement)

    def nova_manage(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """What nova-manage prints; it must end with one of these codes."""
        command = [str(self.environment.program("nova-manage")), "--config-file", str(self.nova_conf), *arguments]
        return self._output(command, codes=codes)

    def _nova_databases(self) -> None:
        directory = self.nova_conf.parent
        directory.mkdir(mode=0o700)
        text = settings.NOVA.format(
            directory=directory, database=self._database, transport=self.rabbitmq.url()
        ) + self._auth("keystone_authtoken", "neutron", "placement")
        write_atomic(self.nova_conf, text, mode=0o600)
        if self._kept:
            return
        for command in (
            ["api_db", "sync"],
            ["cell_v2", "map_cell0", "--database_connection", f"{self._database}nova_cell0"],
            ["db", "sync"],
            ["cell_v2", "create_cell", "--name", "cell1"],
        ):
            self.nova_manage(*command)

    def _placement(self) -> ServiceProcess:
        directory = self.directory / "placement"
        directory.mkdir(mode=0o700)
        text = settings.PLACEMENT.format(database=self._database) + self._auth("keystone_authtoken")
        write_atomic(directory / "placement.conf", text, mode=0o600)
        variables = {"OS_PLACEMENT_CONFIG_DIR": str(directory)}
        return self._serve("placement", "placement.wsgi.api", directory, variables)

    def _glance(self) -> ServiceProcess:
        directory = self.directory / "glance"
        directory.mkdir(mode=0o700)
        for name in (_IMAGES, "staging", "tasks"):
            (directory / name).mkdir()
        if self._kept:
            shutil.copytree(self._kept / _IMAGES, directory / _IMAGES, dirs_exist_ok=True)
        paste = self._glance_packages / "etc" / "glance" / "glance-api-paste.ini"
        text = GLANCE.format(directory=directory, database=f"{self._database}glance", paste=paste)
        config = directory / "glance-api.conf"
        write_atomic(config, text + self._auth("keystone_authtoken"), mode=0o600)
        path = {"PYTHONPATH": str(self._glance_packages)}
        python = str(self.environment.program("python"))
        if not self._kept:
            self._output([python, "-m", "glance.cmd.manage", "--config-file", str(config), "db_sync"], path)
        return self._serve("image", "glance.wsgi.api", directory, {"OS_GLANCE_CONFIG_DIR": str(directory)}, path=path)

    def _neutron(self) -> ServiceProcess:
        directory = self.directory / "neutron"
        directory.mkdir()
        return self._serve("network", "neutron_stub", directory, {}, path={"PYTHONPATH": str(_INSIDE)})

    def _serve(
        self,
        kind: str,
        module: str,
        directory: Path,
        variables: Mapping[str, str],
        arguments: Sequence[str] = (),
        path: Mapping[str, str] | None = None,
    ) -> ServiceProcess:
        description = directory / "description.json"
        content = {
            "environment": dict(variables),
            "arguments": list(arguments),
            "applications": [[module, "application", False]],
            "port": self.ports[kind],
        }
        write_atomic(description, json.dumps(content), mode=0o600)
        return self._run(kind, inside_command(self.environment, "wsgi", description), directory, path)

    def _run(
        self, name: str, command: Sequence[str], directory: Path, path: Mapping[str, str] | None = None
    ) -> ServiceProcess:
        service = ServiceProcess(
            name,
            ["setpriv", "--pdeathsig", "KILL", *command],
            log=directory / f"{name}.log",
            environment={**self.environment.variables(), **(path or {})},
            cwd=directory,
        )
        self._exit.callback(service.stop)
        self._services.append(service)
        return service

    def _auth(self, *groups: str) -> str:
        return "".join(settings.auth(group, self.ports["identity"], self.password) for group in groups)

    def _output(
        self, command: Sequence[str], path: Mapping[str, str] | None = None, *, codes: Sequence[int] = (0,)
    ) -> str:
        """What a command printed; its log stays, with those of the services."""
        log = self.directory / "commands.log"
        with log.open("ab") as errors:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**self.environment.variables(), **(path or {})},
                cwd=self.directory,
                timeout=_SECONDS,
                check=False,
            )
        if process.returncode not in codes:
            raise LabError(
                f"{' '.join(command[:4])} … ended with code {process.returncode}; {log} ends with:\n{tail(log)}"
            )
        return process.stdout

"""Keystone, Placement and the Nova API of one release, each in a separate process on loopback.

>>> with EmbeddedCloud("2025.2") as cloud, cloud.connection() as connection:
...     connection.compute.create_flavor(name="g1", ram=8192, vcpus=4, disk=40)
...     cloud.openstack("flavor", "list")

It stores flavors, projects and quotas. Without a scheduler or compute service, it cannot boot servers
(:mod:`gpustack_demo.embedded.nova` can).
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.environment import Report
from gpustack_demo.embedded.glance import start_glance
from gpustack_demo.embedded.hosts import Config
from gpustack_demo.embedded.identity import AUTH, clouds_with_keystone, inside_command, start_keystone, write_clouds
from gpustack_demo.embedded.process import ServiceProcess, free_port
from gpustack_demo.embedded.run import RunningCloud
from gpustack_demo.embedded.templates import copy_template

_START_SECONDS = 90.0
_CELL0 = "00000000-0000-0000-0000-000000000000"
_CELL1 = "00000000-0000-0000-0000-000000000001"
_NOVA = """
[DEFAULT]
transport_url = fake:///
[api]
auth_strategy = keystone
[api_database]
connection = sqlite:///{directory}/api.sqlite
sqlite_synchronous = false
[database]
connection = sqlite:///{directory}/cell1.sqlite
sqlite_synchronous = false
[oslo_concurrency]
lock_path = {directory}
"""
_PLACEMENT = """
[placement_database]
connection = sqlite:///{directory}/placement.sqlite
sqlite_synchronous = false
"""
_APPLICATIONS = {
    "nova": [
        ["nova.wsgi.osapi_compute", "application", False],
        ["nova.api.openstack.compute.wsgi", "init_application", True],
    ],
    "placement": [["placement.wsgi.api", "application", False], ["placement.wsgi", "init_application", True]],
}


class EmbeddedCloud(RunningCloud):
    """Keystone, Placement and the Nova API of one release, as a context manager.

    :param config: additional nova.conf for the API: texts, files, drop-in directories.
    :param images: whether it has Glance too.
    """

    password: str
    ports: Mapping[str, int]

    def __init__(
        self,
        release: str,
        *,
        config: Config = (),
        images: bool = False,
        directory: Path | None = None,
        report: Report = lambda text: None,
    ) -> None:
        super().__init__(release, directory=directory, report=report)
        self._config = config
        self._images = images

    @property
    def nova_conf(self) -> Path:
        """The nova.conf of the API. Mode 0600."""
        return self.directory / "nova" / "nova.conf"

    def _start(self) -> None:
        self.password = secrets.token_urlsafe(16)
        paths = {"identity": "/v3", "compute": "/v2.1", "placement": "", **({"image": ""} if self._images else {})}
        self.ports = {kind: free_port() for kind in paths}
        catalog = {kind: f"http://127.0.0.1:{port}{paths[kind]}" for kind, port in self.ports.items()}
        identity = self.ports["identity"]
        services = {
            "identity": start_keystone(
                self.environment, self.directory / "keystone", port=identity, password=self.password, catalog=catalog
            ),
        }
        self._exit.callback(services["identity"].stop)
        services["placement"] = self._start_placement()
        if self._images:
            services["image"] = start_glance(
                self.environment,
                self.directory / "glance",
                port=self.ports["image"],
                identity=identity,
                password=self.password,
                report=self._report,
            )
            self._exit.callback(services["image"].stop)
        services["compute"] = self._start_nova()
        for kind, service in services.items():
            service.wait_for_port(self.ports[kind], seconds=_START_SECONDS)
        write_clouds(self.clouds_yaml, clouds_with_keystone(identity, self.password))

    def _start_placement(self) -> ServiceProcess:
        directory = self.directory / "placement"
        directory.mkdir(mode=0o700)
        copy_template(self.environment, "placement", directory / "placement.sqlite")
        text = _PLACEMENT.format(directory=directory) + self._auth("keystone_authtoken")
        write_atomic(directory / "placement.conf", text, mode=0o600)
        return self._serve("placement", directory, {"OS_PLACEMENT_CONFIG_DIR": str(directory)})

    def _start_nova(self) -> ServiceProcess:
        directory = self.directory / "nova"
        directory.mkdir(mode=0o700)
        for name, template in {"api": "api", "cell0": "main", "cell1": "main"}.items():
            copy_template(self.environment, template, directory / f"{name}.sqlite")
        _map_cells(directory)
        text = _NOVA.format(directory=directory) + self._auth("keystone_authtoken") + self._auth("placement")
        write_atomic(directory / "nova.conf", text, mode=0o600)
        files = ["nova.conf"]
        for number, part in enumerate(self._config):
            for source in sorted(part.glob("*.conf")) if isinstance(part, Path) and part.is_dir() else [part]:
                content = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
                files.append(f"{number:02d}-{len(files):02d}.conf")
                write_atomic(directory / files[-1], content, mode=0o600)
        (directory / "api-paste.ini").symlink_to(self.environment.path / "etc" / "nova" / "api-paste.ini")
        # OS_NOVA_CONFIG_FILES also names them, but only since Antelope.
        arguments = [argument for name in files for argument in ("--config-file", str(directory / name))]
        return self._serve("nova", directory, {"OS_NOVA_CONFIG_DIR": str(directory)}, arguments)

    def _serve(
        self, name: str, directory: Path, variables: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> ServiceProcess:
        description = directory / "description.json"
        port = self.ports["compute" if name == "nova" else name]
        content = {
            "environment": dict(variables),
            "arguments": list(arguments),
            "applications": _APPLICATIONS[name],
            "port": port,
        }
        write_atomic(description, json.dumps(content), mode=0o600)
        service = ServiceProcess(
            "the Nova API" if name == "nova" else "Placement",
            inside_command(self.environment, "wsgi", description),
            log=directory / f"{name}.log",
            environment=self.environment.variables(),
            cwd=directory,
        )
        self._exit.callback(service.stop)
        return service

    def _auth(self, group: str) -> str:
        return AUTH.format(group=group, port=self.ports["identity"], password=self.password)


def _map_cells(directory: Path) -> None:
    """Map the cells in the API database, like ``nova-manage cell_v2 map_cell0`` and ``create_cell``."""
    cells = ((_CELL0, "cell0", "none:///"), (_CELL1, "cell1", "fake:///"))
    with closing(sqlite3.connect(directory / "api.sqlite")) as database, database:
        database.executemany(
            "INSERT INTO cell_mappings (uuid, name, transport_url, database_connection, disabled)"
            " VALUES (?, ?, ?, ?, 0)",
            [(uuid, name, bus, f"sqlite:///{directory}/{name}.sqlite") for uuid, name, bus in cells],
        )

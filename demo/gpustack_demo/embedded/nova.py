"""All of Nova in one separate process: it boots, moves and deletes servers with GPUs.

>>> with EmbeddedNova("2025.2", hosts=[EmbeddedHost(name="gpu1", pci=gpus(2))], config=[rendered_text]) as nova:
...     with nova.connection() as cloud:
...         flavor = cloud.compute.create_flavor(name="g", ram=512, vcpus=1, disk=1)
...     nova.control.domains("gpu1")
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.control import Control
from gpustack_demo.embedded.environment import Report
from gpustack_demo.embedded.glance import start_glance
from gpustack_demo.embedded.hosts import Config, EmbeddedDevice, EmbeddedHost, devices_of_snapshot, gpus
from gpustack_demo.embedded.identity import (
    AUTH,
    COMPUTE_ENDPOINT,
    LIMITS,
    clouds_with_keystone,
    clouds_without_keystone,
    inside_command,
    start_keystone,
    write_clouds,
)
from gpustack_demo.embedded.metadata import Metadata
from gpustack_demo.embedded.neutron import NOVA as WITHOUT_AGENTS
from gpustack_demo.embedded.neutron import start_neutron
from gpustack_demo.embedded.process import ServiceProcess, free_port
from gpustack_demo.embedded.run import RunningCloud, run_captured
from gpustack_demo.embedded.templates import copy_template

IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
"""An image that every embedded Nova has."""

_START_SECONDS = 300.0
_PORTS = ("compute", "placement", "image", "glance", "metadata", "control", "identity", "network")
_BASE = """
[DEFAULT]
state_path = {directory}/state
transport_url = fake:///
long_rpc_timeout = 60
[database]
connection = {cell1}
[api_database]
connection = {api}
[wsgi]
api_paste_config = {environment}/etc/nova/api-paste.ini
[oslo_concurrency]
lock_path = {directory}/locks
[glance]
num_retries = 0
[neutron]
service_metadata_proxy = true
metadata_proxy_shared_secret = {secret}
"""


class EmbeddedNova(RunningCloud):
    """Nova of one release, as a context manager; its API listens on loopback.

    :param hosts: the compute hosts.
    :param config: nova.conf of the API, and of every service without its own: texts, files, drop-in directories.
    :param scheduler_config: nova.conf of the scheduler.
    :param conductor_config: nova.conf of the conductor.
    :param database: the SQLAlchemy URL of a server for the databases instead of SQLite files
        (``mysql+pymysql://root@127.0.0.1:3306``, ``postgresql+psycopg2://…``). The databases ``PREFIX_api``,
        ``PREFIX_cell0`` … are created or emptied, and kept afterwards.
    :param database_prefix: the prefix of their names.
    :param cells: the names of the cells, in addition to ``cell0``.
    :param policy: rules of the API's policy that differ from Nova's defaults, by name.
    :param keystone: whether a real Keystone runs and checks tokens; otherwise the token is the one in clouds.yaml.
    :param limits: whether Nova reads limits from that Keystone (unified limits).
    :param images: whether a real Glance is in the catalog; Nova itself keeps its test double of Glance.
    :param networks: the physical networks of a real Neutron (with ``keystone`` only), which binds SR-IOV ports to the
        hosts in ``hosts``; without them, Neutron is Nova's test double.
    :param debug: whether to log at level DEBUG.
    :param python_path: directories of modules that Nova's configuration names.
    """

    control: Control
    metadata: Metadata

    def __init__(
        self,
        release: str,
        *,
        hosts: Sequence[EmbeddedHost] = (),
        config: Config = (),
        scheduler_config: Config | None = None,
        conductor_config: Config | None = None,
        database: str | None = None,
        database_prefix: str = "nova",
        cells: Sequence[str] = ("cell1",),
        policy: Mapping[str, str] = MappingProxyType({}),
        keystone: bool = False,
        limits: bool = False,
        images: bool = False,
        networks: Sequence[str] = (),
        debug: bool = False,
        python_path: Sequence[Path] = (),
        directory: Path | None = None,
        report: Report = lambda text: None,
    ) -> None:
        super().__init__(release, directory=directory, report=report)
        self._hosts = {host.name: host for host in hosts}
        self._configs = {"api": config, "scheduler": scheduler_config, "conductor": conductor_config}
        self._server = database
        self._prefix = database_prefix
        self._cells = tuple(cells)
        self._policy = dict(policy)
        self._keystone = keystone
        self._limits = limits
        self._images = images
        self._networks = tuple(networks)
        self._debug = debug
        self._python_path = tuple(python_path)

    @property
    def nova_conf(self) -> Path:
        """A nova.conf with ``[database]`` (cell1) and ``[api_database]``, as nova-manage needs it. Mode 0600."""
        return self.directory / "nova.conf"

    @property
    def log(self) -> Path:
        """The log of Nova."""
        return self.directory / "nova.log"

    def database_url(self, name: str = "cell1") -> str:
        """The SQLAlchemy URL of a database: ``api``, ``cell0``, or a cell."""
        if self._server is None:
            return f"sqlite:///{self.directory}/{name}.sqlite"
        base, question, query = self._server.partition("?")
        return f"{base.rstrip('/')}/{self._prefix}_{name}{question}{query}"

    def start_compute(self, host: EmbeddedHost) -> None:
        """Start nova-compute on a new or stopped host.

        :raises ControlError: when nova-compute does not start (because of a wrong configuration, for example).
        """
        self._hosts[host.name] = host
        self.control.call("start", host=self._entry(host))

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the release's own ``nova-manage`` on these databases.

        :raises subprocess.CalledProcessError: when it fails and ``check`` is set.
        """
        command = [str(self.environment.program("nova-manage")), "--config-file", str(self.nova_conf), *arguments]
        return run_captured(command, self.environment.variables(), check=check)

    def write_config(self, service: str, config: Config) -> list[str]:
        """Write a configuration for a service, after the common part; return the files in reading order."""
        files = [str(self.nova_conf)]
        directory = self.directory / "etc" / service
        directory.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(config):
            if isinstance(part, Path):
                files += [str(file) for file in sorted(part.glob("*.conf"))] if part.is_dir() else [str(part)]
            else:
                path = directory / f"{number:02d}.conf"
                write_atomic(path, part, mode=0o600)
                files.append(str(path))
        return files

    def _entry(self, host: EmbeddedHost) -> dict[str, object]:
        config = None if host.config is None else self.write_config(host.name, host.config)
        return asdict(replace(host, config=config))

    def _start(self) -> None:
        ports = {kind: free_port() for kind in _PORTS}
        endpoints = {
            "compute": f"http://127.0.0.1:{ports['compute']}/v2.1",
            "placement": f"http://127.0.0.1:{ports['placement']}",
            "image": f"http://127.0.0.1:{ports['glance' if self._images else 'image']}",
        }
        if self._networks:
            endpoints["network"] = f"http://127.0.0.1:{ports['network']}"
        password, token = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        keystone = self._start_keystone(ports["identity"], password, endpoints) if self._keystone else None
        glance = self._start_glance(ports, password) if self._images else None
        neutron = self._start_neutron(ports, password) if self._networks else None
        nova = self._start_nova(ports, password, token)
        if keystone is not None:
            keystone.wait_for_port(ports["identity"], seconds=_START_SECONDS)
            write_clouds(self.clouds_yaml, clouds_with_keystone(ports["identity"], password))
        else:
            write_clouds(self.clouds_yaml, clouds_without_keystone(endpoints, token))
        if glance is not None:
            glance.wait_for_port(ports["glance"], seconds=_START_SECONDS)
        if neutron is not None:
            neutron.wait_for_port(ports["network"], seconds=_START_SECONDS)
        nova.wait_for_file(self.directory / "ready", seconds=_START_SECONDS)

    def _start_glance(self, ports: Mapping[str, int], password: str) -> ServiceProcess:
        service = start_glance(
            self.environment,
            self.directory / "glance",
            port=ports["glance"],
            identity=ports["identity"],
            password=password,
            report=self._report,
        )
        self._exit.callback(service.stop)
        return service

    def _start_neutron(self, ports: Mapping[str, int], password: str) -> ServiceProcess:
        service = start_neutron(
            self.environment,
            self.directory / "neutron",
            port=ports["network"],
            identity=ports["identity"],
            password=password,
            networks=self._networks,
            hosts=list(self._hosts),
            report=self._report,
        )
        self._exit.callback(service.stop)
        return service

    def _start_keystone(self, port: int, password: str, endpoints: Mapping[str, str]) -> ServiceProcess:
        catalog = {"identity": f"http://127.0.0.1:{port}/v3", **endpoints}
        service = start_keystone(
            self.environment, self.directory / "keystone", port=port, password=password, catalog=catalog
        )
        self._exit.callback(service.stop)
        return service

    def _start_nova(self, ports: Mapping[str, int], password: str, token: str) -> ServiceProcess:
        base = _BASE.format(
            directory=self.directory,
            environment=self.environment.path,
            secret=token,
            cell1=self.database_url().replace("%", "%%"),
            api=self.database_url("api").replace("%", "%%"),
        )
        if self._keystone:
            base += AUTH.format(group="keystone_authtoken", port=ports["identity"], password=password)
        if self._limits:
            base += LIMITS.format(port=ports["identity"], password=password, endpoint=COMPUTE_ENDPOINT)
        if self._networks:
            base += WITHOUT_AGENTS + AUTH.format(group="neutron", port=ports["identity"], password=password)
        write_atomic(self.nova_conf, base, mode=0o600)
        names = ("api", "cell0", *self._cells)
        if self._server is None:
            for name in names:
                template = "api" if name == "api" else "main"
                copy_template(self.environment, template, self.directory / f"{name}.sqlite")
        for part in ("state", "locks", "tmp"):
            (self.directory / part).mkdir()
        self.control = Control(ports["control"], token)
        self.metadata = Metadata(port=ports["metadata"], secret=token)
        configs = {
            f"{service}_config": None if config is None else self.write_config(service, config)
            for service, config in self._configs.items()
        }
        description = {
            **configs,
            "cells": {name: self.database_url(name) for name in names[1:]},
            "policy": self._policy,
            "keystone": self._keystone,
            "neutron": bool(self._networks),
            "debug": self._debug,
            "ports": dict(ports),
            "token": token,
            "ready": str(self.directory / "ready"),
            "hosts": [self._entry(host) for host in self._hosts.values() if host.running],
        }
        path = self.directory / "description.json"
        write_atomic(path, json.dumps(description), mode=0o600)
        variables = {**self.environment.variables(), "TMPDIR": str(self.directory / "tmp")}
        if self._python_path:
            variables["PYTHONPATH"] = os.pathsep.join(map(str, self._python_path))
        variables["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "false"
        service = ServiceProcess(
            "Nova",
            inside_command(self.environment, "nova", path),
            log=self.log,
            environment=variables,
            cwd=self.directory,
        )
        self._exit.callback(service.stop)
        self.service = service
        return service


__all__ = ["IMAGE", "Control", "EmbeddedDevice", "EmbeddedHost", "EmbeddedNova", "devices_of_snapshot", "gpus"]

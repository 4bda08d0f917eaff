"""A real Keystone, Placement and Nova with unified limits, configured by ``gpustack nova render``."""

from __future__ import annotations

import contextlib
import io
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import yaml

from gpustack.cli.app import main
from gpustack.hosts.facts.store import save_snapshot
from gpustack_demo.embedded import limits, servers
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from support.cloudworld import Ran
from support.fleet_answers import facts
from support.members import connection_of, member

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

HOST, GPUS = "gpu1", 8
SECONDS = 300.0
_SPEC: dict[str, Any] = {
    "version": 1,
    "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}},
    "hosts": {HOST: ["k4200"]},
    "flavors": {"g{count}": {"model": "k4200", "count": [1, 2], "vcpus": 1, "ram": "64MiB", "disk": 1}},
}


@dataclass
class QuotaWorld:
    """A cloud with one host and the project ``research`` with the user ``student``."""

    release: str
    placement: str
    directory: Path
    nova: EmbeddedNova = field(init=False)
    admin: Connection = field(init=False)
    student: Connection = field(init=False)
    clouds: dict[str, Path] = field(default_factory=dict)
    made: list[tuple[Connection, Server]] = field(default_factory=list)

    def spec(self, **quotas: object) -> Path:
        """Write the spec with these quotas."""
        nova = {"release": self.release, "placement": self.placement}
        path = self.directory / "gpustack.yaml"
        path.write_text(yaml.safe_dump({**_SPEC, "nova": nova, "quotas": quotas}))
        return path

    def run(self, *arguments: object, user: str = "admin") -> Ran:
        """Run a command of gpustack as this user."""
        return _run(self.clouds[user], *arguments)

    def apply(self, **quotas: object) -> Path:
        """Sync limits and flavors with a spec of these quotas."""
        spec = self.spec(**quotas)
        for group in ("quota", "flavor"):
            ran = self.run(group, "apply", spec, "--yes", "--prune")
            assert ran.code == 0, ran
        return spec

    def boot(self, flavor: str, cloud: Connection | None = None) -> Server:
        """Boot an instance, by default of the project ``research``."""
        cloud = cloud or self.student
        wanted = cloud.compute.find_flavor(flavor, ignore_missing=False)
        server = servers.boot(cloud, f"vm{len(self.made)}", wanted, seconds=SECONDS)
        self.made.append((cloud, server))
        assert server.status == "ACTIVE", server.fault
        return server

    def resize(self, server: Server, flavor: str) -> None:
        """Request a resize of an instance."""
        compute = self.student.compute
        compute.resize_server(server, compute.find_flavor(flavor, ignore_missing=False))

    def reach(self, server: Server, status: str) -> None:
        """Wait until an instance has this status, and no task."""
        servers.until(
            self.student, server, lambda now: now.status == status and now.task_state is None, seconds=SECONDS
        )

    def tidy(self) -> None:
        """Delete the instances."""
        while self.made:
            servers.delete(*self.made.pop(), seconds=SECONDS)

    def used(self) -> Mapping[str, int]:
        """The use of ``research`` in Placement."""
        path = f"/usages?project_id={self.student.current_project_id}"
        usages: Mapping[str, int] = self.admin.placement.get(path, microversion="1.9").json()["usages"]
        return usages


def _run(clouds_yaml: Path, *arguments: object) -> Ran:
    variables = {"OS_CLIENT_CONFIG_FILE": str(clouds_yaml), "OS_CLOUD": "embedded"}
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, variables))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = main([*map(str, arguments)])
    return Ran(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def quota_world(release: str, placement: str, directory: Path) -> Iterator[QuotaWorld]:
    """Start a cloud.

    :param placement: the stage of PCI in Placement.
    """
    world = QuotaWorld(release=release, placement=placement, directory=directory)
    addresses = range(0x81, 0x81 + GPUS)
    save_snapshot(directory / "hosts.json", [facts(HOST, *addresses).model_dump(by_alias=True)])
    spec, out = world.spec(default={"k4200": 0}), directory / "rendered"
    ran = _run(Path("/dev/null"), "nova", "render", spec, "--snapshot", directory / "hosts.json", "--out", out)
    assert ran.code == 0, ran
    resize = "[DEFAULT]\nallow_resize_to_same_host = true\n"
    location = f"[compute]\nprovider_config_location = {out / HOST}/etc/nova/provider_config\n"
    drop_ins = "etc/nova/nova.conf.d"
    host = EmbeddedHost(name=HOST, pci=gpus(GPUS), config=[resize + location, out / HOST / drop_ins])
    config: list[str | Path] = [resize, out / "control" / drop_ins]
    with contextlib.ExitStack() as stack:
        world.nova = stack.enter_context(EmbeddedNova(release, hosts=[host], config=config, keystone=True, limits=True))
        world.admin = stack.enter_context(world.nova.connection())
        limits.register(world.admin)
        student = member(world.admin, world.nova.clouds_yaml, directory, user="student", project="research")
        world.clouds = {"admin": world.nova.clouds_yaml, "student": student}
        world.student = stack.enter_context(connection_of(student))
        yield world


def data(ran: Ran) -> Any:
    """The output of a command with ``-f json``."""
    assert ran.code == 0, ran
    return json.loads(ran.out)

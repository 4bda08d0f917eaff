"""A real Nova with a GPU host and an ordinary host, configured by ``gpustack nova render``, and two projects."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from openstack.exceptions import BadRequestException, NotFoundException

from gpustack.cli.options import release_of
from gpustack.hosts.facts.store import save_snapshot
from gpustack.offer.cloud_plan.access import ANYBODY
from gpustack.offer.cloud_plan.plan import CloudChoices, plan
from gpustack.spec.load import load_spec
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from support.cloudworld import Ran
from support.fleet_answers import facts
from support.fleet_runs import execute
from support.members import connection_of, member

if TYPE_CHECKING:
    from openstack.compute.v2.flavor import Flavor
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

GPU_HOST, ORDINARY_HOST, GPUS = "gpu1", "cpu1", 8
SECONDS = 300.0
_SPEC: dict[str, Any] = {
    "version": 1,
    "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}},
    "hosts": {GPU_HOST: ["k4200"]},
    "flavors": {"g1": {"model": "k4200", "vcpus": 1, "ram": "64MiB", "disk": 1}},
}
IN_PLACEMENT = ("2026.2",)
"""The releases that schedule by PCI in Placement: the traits of devices are required beside that of the host."""
TENANCY: dict[str, Any] = {"aggregates": {"gpu-research": {"projects": ["research"]}}}


@dataclass
class Reserved:
    """The cloud, with a connection and a clouds.yaml for each project."""

    directory: Path
    release: str
    nova: EmbeddedNova
    clouds: dict[str, Path] = field(default_factory=dict)
    connections: dict[str, Connection] = field(default_factory=dict)

    @property
    def admin(self) -> Connection:
        return self.connections["admin"]

    def spec(self, tenancy: object = None) -> str:
        """Write a spec."""
        path = self.directory / "gpustack.yaml"
        sections = {"tenancy": tenancy} if tenancy else {}
        nova = {"release": self.release, "placement": "schedule" if self.release in IN_PLACEMENT else "off"}
        path.write_text(yaml.safe_dump({**_SPEC, "nova": nova, **sections}))
        return str(path)

    def run(self, *arguments: str) -> Ran:
        """Run a command of gpustack as administrator."""
        return execute(self.clouds["admin"], *arguments)

    def apply(self, group: str, spec: str, *options: str, code: int = 0) -> str:
        """Run ``apply``, check its exit code, and return its messages."""
        ran = self.run(group, "apply", spec, "--yes", *options)
        assert ran.code == code, ran
        return ran.err

    def operations(self, spec: str, *options: str) -> list[str]:
        """The kinds of the operations that ``tenancy plan`` shows."""
        ran = self.run("tenancy", "plan", spec, "-f", "json", *options)
        assert ran.code == 0, ran
        return [operation["kind"] for operation in json.loads(ran.out)["operations"]]

    def dump(self) -> dict[str, object]:
        """All flavors with their access, all aggregates, and the traits of hosts, without ids that the API assigns."""
        compute, placement = self.admin.compute, self.admin.placement
        flavors = {
            flavor.name: (
                dict(flavor.extra_specs),
                flavor.description,
                sorted(entry["tenant_id"] for entry in compute.get_flavor_access(flavor))
                if not flavor.is_public
                else None,
            )
            for flavor in compute.flavors(details=True, get_extra_specs=True, is_public=None)
        }
        aggregates = {found.name: (sorted(found.hosts or ()), dict(found.metadata)) for found in compute.aggregates()}
        traits = {
            provider.name: sorted(
                placement.get(f"/resource_providers/{provider.id}/traits", microversion="1.6").json()["traits"]
            )
            for provider in placement.resource_providers()
        }
        return {"flavors": flavors, "aggregates": aggregates, "traits": traits}

    def reclaim_step(self, server: Server, project: str) -> tuple[str, list[str]]:
        """The next step of ``reclaim plan`` for an instance that has expired, and the codes of its findings."""
        path = self.directory / "reclaim.yaml"
        rules = {"projects": [project], "expires": {server.id: "2026-01-01T00:00:00Z"}, "running": True}
        path.write_text(yaml.safe_dump({**_SPEC, "reclaim": rules}))
        ran = self.run("reclaim", "plan", str(path), "--snapshot-space", "5", "-f", "json")
        assert ran.code == 0, ran
        (row,) = json.loads(ran.out)
        return row["step"], [found["code"] for found in row["findings"]]

    def boot(self, project: str, flavor: str, host: str | None = None) -> Server:
        """Boot an instance of a project; an administrator boots it on a certain host."""
        cloud = self.connections[project]
        wanted = cloud.compute.find_flavor(flavor, ignore_missing=False)
        return servers.boot(cloud, f"{project}-{flavor}", wanted, host=host, seconds=SECONDS)

    @contextlib.contextmanager
    def only_gpu_host(self) -> Iterator[None]:
        """Close the ordinary host: each instance starts on the GPU host or nowhere."""
        (service,) = self.admin.compute.services(host=ORDINARY_HOST, binary="nova-compute")
        self.admin.compute.disable_service(service)
        yield
        self.admin.compute.enable_service(service)

    def private_flavor(self, like: str, *projects: str) -> Flavor:
        """Create a private flavor with the extra specs of another one, for these projects."""
        compute = self.admin.compute
        made = compute.create_flavor(name=f"private-{like}", ram=64, vcpus=1, disk=1, is_public=False)
        specs = compute.fetch_flavor_extra_specs(compute.find_flavor(like, ignore_missing=False)).extra_specs
        compute.create_flavor_extra_specs(
            made, {key: of for key, of in specs.items() if not key.startswith("gpustack")}
        )
        for project in projects:
            compute.flavor_add_tenant_access(made, str(self.connections[project].current_project_id))
        return made

    def admissions(self) -> dict[str, frozenset[str]]:
        """The ids of the projects that a plan sees admitted on the GPU host, by the name of the flavor."""
        spec = load_spec(Path(self.spec(TENANCY)))
        found = plan(self.admin, spec, frozenset({"tenancy"}), CloudChoices(release=release_of(None, spec)))
        names = {flavor.id: flavor.name for flavor in self.admin.compute.flavors(is_public=None)}
        return {names[flavor]: of for (host, flavor), of in found.admissions.items() if host == GPU_HOST}

    def differences(self, flavors: Sequence[str]) -> list[tuple[str, str, bool]]:
        """Each pair of a project and a flavor for which Nova decides otherwise than the plan, and the plan's answer."""
        table, differ = self.admissions(), []
        for project, connection in self.connections.items():
            for name in flavors:
                if project == "admin" and name.startswith("private"):
                    continue  # administrators may use every flavor
                own = connection.current_project_id
                named = any(own in projects for projects in table.values())
                expected = (own if named else ANYBODY) in table[name]
                if self._admitted(project, name) != expected:
                    differ.append((project, name, expected))
        return differ

    def _admitted(self, project: str, flavor: str) -> bool:
        """Whether Nova boots an instance of a project with a flavor on the GPU host."""
        try:
            server = self.boot(project, flavor)
        except (NotFoundException, BadRequestException):  # no access to the flavor
            return False
        host = self.host_of(server)
        servers.delete(self.admin, server)
        return host == GPU_HOST

    def host_of(self, server: Server) -> str | None:
        """The host of an instance; None if Nova found none."""
        current = self.admin.compute.get_server(server.id)
        assert current.status in ("ACTIVE", "ERROR"), current
        return current.compute_host if current.status == "ACTIVE" else None


@contextlib.contextmanager
def reserved_world(release: str, directory: Path) -> Iterator[Reserved]:
    """Start a cloud whose services have the options that the spec with :data:`TENANCY` needs."""
    snapshot, out = directory / "hosts.json", directory / "rendered"
    save_snapshot(snapshot, [facts(GPU_HOST, *range(0x81, 0x81 + GPUS)).model_dump(by_alias=True)])
    world = Reserved(directory=directory, release=release, nova=EmbeddedNova(release))
    spec = world.spec(TENANCY)
    ran = execute(Path("/dev/null"), "nova", "render", spec, "--snapshot", str(snapshot), "--out", str(out))
    assert ran.code == 0, ran
    drop_ins = "etc/nova/nova.conf.d"
    hosts = [
        EmbeddedHost(name=GPU_HOST, pci=gpus(GPUS), config=[out / GPU_HOST / drop_ins]),
        EmbeddedHost(name=ORDINARY_HOST, config=[out / GPU_HOST / drop_ins]),
    ]
    with contextlib.ExitStack() as stack:
        config: list[str | Path] = [out / "control" / drop_ins]
        world.nova = stack.enter_context(EmbeddedNova(release, hosts=hosts, config=config, keystone=True))
        world.connections["admin"] = stack.enter_context(world.nova.connection())
        world.clouds["admin"] = world.nova.clouds_yaml
        for project in ("research", "teaching"):
            path = member(world.admin, world.nova.clouds_yaml, directory, user=f"{project}-user", project=project)
            world.clouds[project] = path
            world.connections[project] = stack.enter_context(connection_of(path))
        world.admin.compute.create_flavor(name="ordinary", ram=64, vcpus=1, disk=1)
        yield world

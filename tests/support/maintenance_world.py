"""A Nova with guests, and an example host of the same name that the real ansible-playbook reboots."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gpustack.base.files import collection_dir
from gpustack.hosts.facts.collector import collect
from gpustack_demo.embedded.hosts import EmbeddedDevice, MdevType
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.servers import boot, delete, gpu_flavor, settled, until
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from support import warm
from support.playbook_place import branches

if TYPE_CHECKING:
    from openstack.compute.v2.flavor import Flavor
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

CONFIG = """
[DEFAULT]
report_interval = 1
service_down_time = 60
shutdown_timeout = 1
cpu_allocation_ratio = 1.0
[pci]
alias = {"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
alias = {"name": "h100", "vendor_id": "10de", "product_id": "2330", "device_type": "type-PCI", "live_migratable": "yes"}
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
device_spec = {"vendor_id": "10de", "product_id": "2330", "live_migratable": "yes"}
[devices]
enabled_mdev_types = nvidia-711
[mdev_nvidia-711]
device_addresses = 0000:a1:00.0
[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,PciPassthroughFilter
"""
RELEASES = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
"""The first is used by most tests, the last by those with several hosts. CONFIG requires 2025.1 or later."""
SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"talk*": [k4200]}\n'
CLOUD = "mycloud"
HOST, OTHER = "talk", "other"
"""The rebooted host has two K4200 for passthrough, the other one has one; both have a live-migratable card."""


_PROCESSORS = 8
"""Per host: enough for one guest of the flavor "more-than-half", but not for two."""


_VGPUS = EmbeddedDevice(
    address="0000:a1:00.0",
    vendor="10de",
    product="25b6",
    driver="nvidia",
    class_="030200",
    mdev_types=(MdevType(id="nvidia-711", name="NVIDIA A16-8Q", instances=2),),
)
"""A card of each host on which Nova creates mediated devices."""


def nova_hosts() -> list[EmbeddedHost]:
    return [
        EmbeddedHost(
            name=HOST, pci=gpus(2) + gpus(1, product="2330", bus=0x91) + (_VGPUS,), cpus_per_node=_PROCESSORS // 2
        ),
        EmbeddedHost(
            name=OTHER,
            pci=gpus(1, bus=0x41) + gpus(1, product="2330", bus=0x51) + (_VGPUS,),
            cpus_per_node=_PROCESSORS // 2,
        ),
    ]


@dataclass
class World:
    """Nova, its API, and a directory with the example hosts."""

    nova: EmbeddedNova
    cloud: Connection
    path: Path
    flavors: dict[str, Flavor]

    def new_host(self, name: str = HOST) -> Path:
        """Replace the example host by an unprepared one."""
        number = len(list(self.path.glob(f"{name}-*")))
        root = self.path / f"{name}-{number}"
        write_host(root, hosts.talk_host(name))
        return root

    def play(self, playbook: str, roots: Path | Mapping[str, Path], *arguments: str, **extra: Any) -> tuple[int, str]:
        """Run a playbook on the example host, or on several by name; return its exit code and output."""
        path = collection_dir() / "playbooks" / f"{playbook}.yml"
        variables = json.dumps({"gpustack_reboot": True, "gpustack_cloud": CLOUD, **extra})
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        return self._run(roots, [program, "-i", "inventory", str(path), "-e", variables, *arguments])

    def shell(self, root: Path, script: str) -> tuple[int, str]:
        """Run commands in a shell."""
        return self._run(root, ["bash", "-ec", script])

    def _run(self, roots: Path | Mapping[str, Path], command: list[str]) -> tuple[int, str]:
        by_host = {HOST: roots} if isinstance(roots, Path) else roots
        everywhere = {
            "gpustack_spec": "gpustack.yaml",
            "gpustack_guests_timeout": 60,
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": warm.outside(),
        }
        inventory = {"all": {"hosts": {name: _variables(root) for name, root in by_host.items()}, "vars": everywhere}}
        (self.path / "inventory").write_text(json.dumps(inventory), encoding="utf-8")
        (self.path / "gpustack.yaml").write_text(SPEC, encoding="utf-8")
        (self.path / "ansible.cfg").touch()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "OS_"))}
        settings = {
            "ANSIBLE_CONFIG": str(self.path / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.path / ".ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "OS_CLIENT_CONFIG_FILE": str(self._clouds()),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONWARNINGS": "ignore",
            "XDG_STATE_HOME": str(self.path / "state"),
        }
        process = warm.run(
            command,
            cwd=self.path,
            env={**branches(), **inherited, **settings},
        )
        return process.returncode, process.stdout + process.stderr

    def _clouds(self) -> Path:
        """A clouds.yaml with a cloud name of the operator's choice."""
        path = self.path / "clouds.yaml"
        clouds = yaml.safe_load(self.nova.clouds_yaml.read_text(encoding="utf-8"))["clouds"]
        path.write_text(yaml.safe_dump({"clouds": {CLOUD: clouds["embedded"]}}), encoding="utf-8")
        path.chmod(0o600)
        return path

    # -- Nova ------------------------------------------------------------------------------------------------

    def guest(self, name: str, flavor: str = "plain", host: str = HOST) -> Server:
        server = boot(self.cloud, name, self.flavors[flavor], host=host)
        assert server.status == "ACTIVE"
        return server

    def server(self, server: Server) -> Server:
        return settled(self.cloud, server)

    def state(self, server: Server) -> tuple[str, str]:
        """Status and host."""
        instance = self.server(server)
        return instance.status, instance.compute_host

    def marks(self, server: Server) -> dict[str, str]:
        return {key: value for key, value in self.server(server).metadata.items() if key.startswith("gpustack")}

    def service(self, host: str = HOST) -> tuple[str, str | None]:
        """Status and reason."""
        (entry,) = self.cloud.compute.services(host=host, binary="nova-compute")
        return entry.status, entry.disabled_reason

    def stop(self, server: Server) -> None:
        self.cloud.compute.stop_server(server.id)
        until(self.cloud, server, lambda instance: instance.status == "SHUTOFF" and instance.task_state is None)

    def start(self, server: Server) -> None:
        self.cloud.compute.start_server(server.id)
        until(self.cloud, server, lambda instance: instance.status == "ACTIVE" and instance.task_state is None)

    def clear(self) -> None:
        """Remove everything that a test left."""
        for host in self.nova.control.hosts():
            self.nova.control.clear_faults(host)
        for server in list(self.cloud.compute.servers(all_projects=True)):
            if server.is_locked:
                self.cloud.compute.unlock_server(server.id)
            delete(self.cloud, server)
        for service in self.cloud.compute.services(binary="nova-compute"):
            self.cloud.compute.enable_service(service)
        self.nova.control.periodic()


def _variables(root: Path) -> dict[str, Any]:
    prefix = [warm.python(), "-m", "gpustack_demo.examples.standin", "--root", str(root)]
    return {
        "gpustack_root": str(root),
        "gpustack_command_prefix": prefix,
        "gpustack_reboot_command": [*prefix, "reboot"],
    }


def prepared(root: Path) -> bool:
    """Whether the example host was rebooted with its GPUs available for passthrough."""
    return {function["driver"] for function in collect(str(root))["pci"] if function["vendor"] == "10de"} == {
        "vfio-pci"
    }


def panic_with(root: Path, *arguments: str) -> None:
    """Make the kernel of the example host's trial boots panic with one of these arguments."""
    path = root / ".example/machine.json"
    machine = {**json.loads(path.read_text(encoding="utf-8")), "panics_with": arguments}
    path.write_text(json.dumps(machine), encoding="utf-8")


def flavors(cloud: Connection) -> dict[str, Flavor]:
    return {
        "plain": cloud.compute.create_flavor(name="plain", ram=512, vcpus=1, disk=1),
        "more-than-half": cloud.compute.create_flavor(
            name="more-than-half", ram=512, vcpus=_PROCESSORS // 2 + 1, disk=1
        ),
        "gpu": gpu_flavor(cloud, "gpu", "k4200"),
        "live": gpu_flavor(cloud, "live", "h100"),
        "vgpu": cloud.compute.create_flavor_extra_specs(
            cloud.compute.create_flavor(name="vgpu", ram=512, vcpus=1, disk=1), {"resources:VGPU": "1"}
        ),
    }

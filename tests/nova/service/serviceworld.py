"""A Nova with guests, and an example host of the same name that the real ansible-playbook reboots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.embedded.nova import IMAGE, Host, Nova, gpus
from gpustack.embedded.servers import boot, delete, gpu_flavor, settled, until
from gpustack.examples import hosts
from gpustack.examples.host import write_host
from gpustack.facts.collector import collect
from gpustack.files import share_dir

if TYPE_CHECKING:
    from openstack.compute.v2.flavor import Flavor
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

CONFIG = """
[DEFAULT]
report_interval = 1
service_down_time = 60
shutdown_timeout = 1
[pci]
alias = {"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,PciPassthroughFilter
"""
SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"talk*": [k4200]}\n'
HOST, OTHER = "talk", "other"
"""The host that is rebooted has two GPUs for guests, the other one has one."""


def nova_hosts() -> list[Host]:
    return [Host(name=HOST, pci=gpus(2)), Host(name=OTHER, pci=gpus(1, bus=0x41))]


@dataclass
class World:
    """Nova, its API, and a directory with the example host."""

    nova: Nova
    cloud: Connection
    path: Path
    flavors: dict[str, Flavor]
    variables: dict[str, str] = field(default_factory=dict)

    def new_host(self, name: str = HOST) -> Path:
        """A host that was never prepared, in the place of the last one."""
        number = len(list(self.path.glob(f"{name}-*")))
        root = self.path / f"{name}-{number}"
        write_host(root, hosts.talk_host(name))
        return root

    def play(self, playbook: str, root: Path, *arguments: str, **given: Any) -> tuple[int, str]:
        """Run a playbook on the example host; → its exit code and all that it says."""
        prefix = [sys.executable, "-m", "gpustack.examples.standin", "--root", str(root)]
        variables = {
            "gpustack_root": str(root),
            "gpustack_command_prefix": prefix,
            "gpustack_reboot_command": [*prefix, "reboot"],
        }
        everywhere = {
            "gpustack_spec": "gpustack.yaml",
            "gpustack_cloud": "embedded",
            "gpustack_guests_timeout": 60,
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
        }
        inventory = {"all": {"hosts": {HOST: variables}, "vars": everywhere}}
        (self.path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
        (self.path / "gpustack.yaml").write_text(SPEC, encoding="utf-8")
        (self.path / "ansible.cfg").touch()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        ansible = {
            "ANSIBLE_CONFIG": str(self.path / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.path / ".ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONWARNINGS": "ignore",
        }
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                *("-i", "inventory.json"),
                str(share_dir("playbooks") / f"{playbook}.yml"),
                *("-e", json.dumps({"gpustack_reboot": True, **given})),
                *arguments,
            ],
            cwd=self.path,
            env={**kept, **self.nova.variables(), **self.variables, **ansible},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    # -- Nova ------------------------------------------------------------------------------------------------

    def guest(self, name: str, flavor: str = "plain", host: str = HOST) -> Server:
        found = boot(self.cloud, name, self.flavors[flavor], host=host)
        assert found.status == "ACTIVE"
        return found

    def server(self, server: Server) -> Server:
        return settled(self.cloud, server)

    def state(self, server: Server) -> tuple[str, str]:
        """Status and host."""
        found = self.server(server)
        return found.status, found.compute_host

    def marks(self, server: Server) -> dict[str, str]:
        return {key: value for key, value in self.server(server).metadata.items() if key.startswith("gpustack")}

    def service(self, host: str = HOST) -> tuple[str, str | None]:
        """Status and reason."""
        (found,) = self.cloud.compute.services(host=host, binary="nova-compute")
        return found.status, found.disabled_reason

    def stop(self, server: Server) -> None:
        self.cloud.compute.stop_server(server.id)
        until(self.cloud, server, lambda one: one.status == "SHUTOFF" and one.task_state is None)

    def start(self, server: Server) -> None:
        self.cloud.compute.start_server(server.id)
        until(self.cloud, server, lambda one: one.status == "ACTIVE" and one.task_state is None)

    def clear(self) -> None:
        """Take everything away that a test left."""
        for host in (HOST, OTHER):
            self.nova.control.clear_faults(host)
        for server in list(self.cloud.compute.servers(all_projects=True)):
            if server.is_locked:
                self.cloud.compute.unlock_server(server.id)
            delete(self.cloud, server)
        for service in self.cloud.compute.services(binary="nova-compute"):
            self.cloud.compute.enable_service(service)
        self.nova.control.periodic()


def prepared(root: Path) -> bool:
    """Whether the example host was rebooted with its GPUs for guests."""
    return {one["driver"] for one in collect(str(root))["pci"] if one["vendor"] == "10de"} == {"vfio-pci"}


def flavors(cloud: Connection) -> dict[str, Flavor]:
    return {
        "plain": cloud.compute.create_flavor(name="plain", ram=512, vcpus=1, disk=1),
        "gpu": gpu_flavor(cloud, "gpu", "k4200"),
    }


def names(servers: Sequence[Server]) -> list[str]:
    return [server.name for server in servers]


__all__ = ["CONFIG", "HOST", "IMAGE", "OTHER", "World", "flavors", "nova_hosts", "prepared"]

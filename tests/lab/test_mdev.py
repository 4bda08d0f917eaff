"""Mediated devices of a real kernel, libvirt and Nova: from the facts to instances, across a reboot of the host.

The devices are serial ports of the kernel's sample driver, and their parent is one of the lab's displays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from . import mtty, recipe
from .cloud import images, instances, prerequisites
from .cloud.compute import UNIT, Compute
from .cloud.control_plane import RELEASE, ControlPlane
from .cloud.kept import SHAPE
from .cloud.moves import listed
from .commands import SPEC, SSH_OPTIONS, gpustack
from .conftest import Lab
from .machine import Machine
from .playbooks import Run, play
from .recording import openstack
from .test_cloud import SERVICE_SECONDS, _drop_ins
from .test_prepare import gpu_functions
from .topology import GPU_ID

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

# openstacksdk warns of its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]
FLAVOR, CLASS, COUNT = "g1.port", "CUSTOM_PORT", mtty.ROOM


@pytest.fixture
def host(compute_lab: Lab) -> Iterator[Machine]:
    """A host with libvirt and nova-compute."""
    prerequisites.check()
    with compute_lab.booted("mdev", SHAPE) as machine:
        yield machine


def test_mediated_devices_from_the_spec_to_instances_and_across_a_reboot(host: Machine, compute_lab: Lab) -> None:
    report = compute_lab.report
    card = next(function.address for function in gpu_functions(host) if function.id == GPU_ID)
    kind = mtty.install(host, report, card)
    text = spec(card, kind)
    report(f"host plan: {kind} on {card}")
    host_run(host, text, "plan", recipe.HOST_NAME, *SSH_OPTIONS)
    with ControlPlane(directory=compute_lab.directory / "control-plane", report=report) as cloud:
        compute = Compute(host=host, cloud=cloud)
        report("prepare.yml with a reboot")
        played(host, text, "prepare.yml", "-e", "gpustack_reboot=true")
        host.wait_ssh()
        host_run(host, text, "verify", "-i", "inventory.yml")
        report("scan, nova render, nova.yml")
        joined(compute, text)
        with cloud.connection() as api:
            used(compute, api, text, compute_lab)


def spec(card: str, kind: str) -> str:
    """A spec with one card whose driver creates mediated devices."""
    vendor, product = GPU_ID.split(":")
    return f"""\
version: 1
models:
  port:
    match: {{vendor: "{vendor}", product: "{product}", addresses: ["{card}"]}}
    vgpu: {{type: {kind}, resource_class: {CLASS}}}
hosts: {{{recipe.HOST_NAME}: [port]}}
nova: {{release: "{RELEASE}"}}
flavors:
  {FLAVOR}: {{model: port, vcpus: 1, ram: 256MiB, disk: 0}}
"""


def joined(compute: Compute, text: str) -> None:
    """Nova's services with what is rendered."""
    gpustack_run(compute, text, "scan", recipe.HOST_NAME, *SSH_OPTIONS, "--save", "hosts.json")
    gpustack_run(compute, text, "nova", "render", SPEC, "--snapshot", "hosts.json", "--out", "rendered")
    compute.cloud.start_nova(_drop_ins(compute.host, "control"))
    compute.configure()
    played(compute.host, text, "nova.yml", "-e", '{"gpustack_nova_services": ["compute"]}')
    compute.wait("host mapped to its cell", compute.registered, seconds=SERVICE_SECONDS)


def used(compute: Compute, api: Connection, text: str, lab: Lab) -> None:
    """Instances until refusal; the host reboots with them; they start again, and everything is free at the end."""
    host, report = compute.host, lab.report
    gpustack_run(compute, text, "flavor", "apply", SPEC, "--snapshot", "hosts.json", "--yes")
    image = images.upload(api, lab.image, lab.directory)
    compute.wait("inventory", lambda: units(compute) == (COUNT, 0) or None, seconds=SERVICE_SECONDS)
    report(f"{COUNT} instances, and one more")
    servers = [made(compute, api, image, f"vm{number}") for number in range(COUNT)]
    if [server.status for server in servers] != ["ACTIVE"] * COUNT:
        raise compute.error(f"{[server.fault for server in servers]}")
    assert units(compute) == (COUNT, COUNT)
    refused = made(compute, api, image, "refused")
    assert refused.status == "ERROR"
    assert "No valid host" in refused.fault["message"]
    before = devices(host)
    assert len(before) == COUNT
    instances.wait_for_console(api, compute, servers[0])
    output = openstack(host, compute.cloud, "console", "log", "show", servers[0].name)
    assert listed(output).count(mtty.DEVICE_ID) == 1, output

    report("the host reboots; the instances start again")
    # The guests have no ACPI, and libvirt-guests would wait five minutes for each.
    host.ssh(["tee", "-a", "/etc/default/libvirt-guests"], stdin="SHUTDOWN_TIMEOUT=1\n")
    host.reboot()
    host.ssh(["systemctl", "start", UNIT])
    compute.wait("nova-compute", lambda: devices(host) == before or None, seconds=SERVICE_SECONDS)
    for server in servers:
        reached(compute, api, server, "SHUTOFF")
        api.compute.start_server(server)
    for server in servers:
        reached(compute, api, server, "ACTIVE")
    host_run(host, text, "verify", "-i", "inventory.yml")
    assert units(compute) == (COUNT, COUNT)

    report("delete")
    openstack(host, compute.cloud, "server", "delete", *(server.name for server in (*servers, refused)))
    compute.wait("everything free", lambda: units(compute) == (COUNT, 0) or None, seconds=SERVICE_SECONDS)
    host.ssh(["systemctl", "stop", UNIT])


def reached(compute: Compute, api: Connection, server: Server, status: str) -> None:
    """Wait until the server has this status."""

    def has() -> bool | None:
        return str(api.compute.get_server(server.id).status) == status or None

    compute.wait(f"{server.name} {status}", has, seconds=SERVICE_SECONDS)


def made(compute: Compute, api: Connection, image: str, name: str) -> Server:
    """A server as it is after its build."""
    return instances.create(api, compute, name, flavor=FLAVOR, image=image)


def devices(host: Machine) -> frozenset[str]:
    """The mediated devices of the host."""
    return frozenset(host.ssh(["ls", "/sys/bus/mdev/devices"]).split())


def units(compute: Compute) -> tuple[int, int]:
    """The total of the class in Placement, and how much of it is used."""
    rows = compute.cloud.sql(
        "SELECT inv.total, COALESCE(SUM(used), 0) FROM placement.inventories AS inv"
        " JOIN placement.resource_classes AS class ON class.id = inv.resource_class_id"
        " LEFT JOIN placement.allocations AS a ON a.resource_provider_id = inv.resource_provider_id"
        f" AND a.resource_class_id = inv.resource_class_id WHERE class.name = '{CLASS}' GROUP BY inv.id"
    )
    return (int(str(rows[0][0])), int(str(rows[0][1]))) if rows else (0, 0)


def gpustack_run(compute: Compute, text: str, *arguments: str) -> Run:
    """A command of gpustack with the cloud's variables, which must succeed."""
    run = gpustack(compute.host, *arguments, spec_text=text, variables=compute.cloud.variables())
    assert run.code == 0, run.output
    return run


def host_run(host: Machine, text: str, command: str, *arguments: str) -> None:
    """A command for hosts, which must find nothing wrong."""
    run = gpustack(host, "host", command, SPEC, *arguments, spec_text=text)
    assert run.code == 0, run.output


def played(host: Machine, text: str, playbook: str, *arguments: str) -> None:
    """A playbook, which must succeed."""
    run = play(host, playbook, *arguments, text=text)
    assert run.code == 0, run.output

"""A bare host joins a cloud: prepared, configured, two instances with a GPU each, and everything is free again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import recipe, recording
from .background import in_background
from .cloud import images, instances, listeners, prerequisites
from .cloud.compute import DROP_INS, OPT_NOVA, PACKAGES, UNIT, Compute, Installation
from .cloud.control_plane import ControlPlane
from .cloud.kept import FLAVOR, SECTIONS, SHAPE
from .cloud.moves import listed
from .commands import SPEC, SSH_OPTIONS, gpustack, gpustack_host
from .conftest import Lab
from .errors import LabError
from .machine import Machine
from .playbooks import Run, spec
from .recording import on_host, on_this_machine, openstack, played
from .test_addresses import configuration
from .test_prepare import assert_prepared, assert_untouched, gpu_functions
from .topology import GPU_COUNT, GPU_ID

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server
    from openstack.connection import Connection

# openstacksdk warns of its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]

SERVICE_SECONDS = 600.0
# The services of the host write here; gpustack's part of Nova's configuration stays after the undo of the host.
OTHERS = ("/etc/libvirt", "/etc/nova")


@pytest.fixture(scope="session")
def machine_is_fit() -> None:
    """Nothing is built or started on a machine that can't run all of it."""
    prerequisites.check()


@dataclass(frozen=True, kw_only=True)
class Site:
    """A host with libvirt and nova-compute, which is not prepared."""

    lab: Lab
    host: Machine
    installation: Installation


@pytest.fixture(
    params=[
        pytest.param(("compute_lab", OPT_NOVA), id="debian12"),
        pytest.param(("debian13_lab", PACKAGES), id="debian13"),
    ]
)
def site(machine_is_fit: None, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Debian 12 with Nova 2025.2 in /opt/nova, and Debian 13 with its own Nova 2025.1."""
    name, installation = request.param
    lab: Lab = request.getfixturevalue(name)
    with lab.booted("cloud", SHAPE) as machine:
        yield Site(lab=lab, host=machine, installation=installation)


SOCKETS = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: {address}:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 77 1
"""


@pytest.mark.parametrize(
    ("address", "state", "expected"),
    [
        ("00000000", "0A", ["00000000:1F90"]),
        ("0F02000A", "0A", ["0F02000A:1F90"]),
        ("0F02000A", "01", []),
        ("0100007F", "0A", []),
        ("00000000000000000000000000000000", "0A", ["00000000000000000000000000000000:1F90"]),
        ("00000000000000000000000001000000", "0A", []),
        ("0000000000000000FFFF00000100007F", "0A", []),
    ],
)
def test_sockets_outside_loopback_are_found(address: str, state: str, expected: list[str]) -> None:
    table = SOCKETS.format(address=address, state=state)
    assert [found for _, found in listeners.exposed(table)] == expected


def test_a_machine_without_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prerequisites.free_memory() > 0
    monkeypatch.setattr(prerequisites, "free_memory", lambda: prerequisites.MEMORY // 2)
    with pytest.raises(LabError, match=r"5\.0 GiB of free memory; the cloud lab needs 10 GiB"):
        prerequisites.check()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prerequisites, "free_memory", lambda: prerequisites.MEMORY)
    monkeypatch.setattr(prerequisites, "RABBITMQ", tmp_path / "missing")
    with pytest.raises(LabError, match="RabbitMQ not installed; run: tests/lab/setup cloud"):
        prerequisites.check()


def test_two_instances_with_a_gpu_each_and_back(site: Site) -> None:
    host, report = site.host, site.lab.report
    report(f"what an operator types and sees is recorded in {host.directory / recording.NAME}")
    assert_untouched(host)
    before = _of_the_host(host)
    run = gpustack(host, "scan", recipe.HOST_NAME, *SSH_OPTIONS, spec_text=spec(sections=SECTIONS))
    assert "GPU010" in run.output, run.output
    on_this_machine(host, "cat", SPEC)
    directory = site.lab.directory / "control-plane"
    report("prepare.yml with a reboot")
    preparation = in_background(played, host, "prepare.yml", "-e", "gpustack_reboot=true", sections=SECTIONS)
    report(f"control plane meanwhile; logs in {directory}")
    # Not in the thread: the kernel ends the services when the thread that started them ends.
    with ControlPlane(directory=directory, report=report) as cloud:
        run = preparation.result()
        assert run.code == 0, run.output
        host.wait_ssh()
        assert host.boots() == 2
        assert_prepared(host)
        serve_instances(Compute(host=host, cloud=cloud, installation=site.installation), site.lab)

    report("host undo with a reboot")
    run = gpustack_host(host, "undo", "--reboot", "--yes")
    assert run.code == 0, run.output
    host.wait_ssh()
    assert host.boots() == 3
    assert_untouched(host)
    assert _of_the_host(host) == before


def serve_instances(compute: Compute, lab: Lab) -> None:
    """Nova with libvirt on a prepared host, from `nova render` to `cleanup plan`."""
    lab.report("scan, nova render; Nova's API, scheduler and conductor; nova.yml")
    join(compute)
    lab.report("nova lint over SSH, with the host's Nova")
    lint_on_the_host(compute)
    with compute.cloud.connection() as api:
        lab.report("flavors, image")
        _gpustack(compute, "flavor", "apply", SPEC, "--snapshot", "hosts.json", "--yes")
        images.upload(api, lab.image, lab.directory)
        use_every_gpu(compute, api, lab.report)

    lab.report("host verify, cleanup plan")
    assert_prepared(compute.host)
    run = gpustack_host(compute.host, "verify")
    assert run.code == 0, run.output
    _gpustack(compute, "cleanup", "plan", "--config-file", str(compute.cloud.nova_conf))
    compute.host.ssh(["systemctl", "stop", UNIT])


def join(compute: Compute) -> None:
    """Give Nova's services the GPUs of a prepared host: the control plane's by hand, the host's with the playbook."""
    _gpustack(compute, "scan", recipe.HOST_NAME, *SSH_OPTIONS, "--save", "hosts.json")
    _gpustack(compute, "nova", "render", SPEC, "--snapshot", "hosts.json", "--out", "rendered")
    compute.cloud.start_nova(_drop_ins(compute.host, "control"))
    compute.configure()
    run = played(compute.host, "nova.yml", "-e", '{"gpustack_nova_services": ["compute"]}', sections=SECTIONS)
    assert run.code == 0, run.output
    for name, text in _drop_ins(compute.host, recipe.HOST_NAME).items():
        assert compute.host.ssh(["cat", f"{DROP_INS}/{name}"]) == text


def lint_on_the_host(compute: Compute) -> None:
    """The host's own Nova accepts its configuration, and refuses a wrong line; lint agrees in both cases."""
    host, wrong = compute.host, "/root/wrong.conf"
    host.ssh(["tee", wrong], stdin="[pci]\ndevice_spec = 5\n")
    reached = ("--on", recipe.HOST_NAME, "--with-nova", compute.installation.program, *SSH_OPTIONS, "--timeout", "600")
    for paths, expected in (("/etc/nova", ()), (f"/etc/nova:{wrong}", ("GPU333", "GPU534"))):
        run = gpustack(host, "nova", "lint", f"compute={paths}", *reached, spec_text=spec(sections=SECTIONS))
        assert run.code == (20 if expected else 0), run.output
        assert all(code in run.output for code in expected), run.output
        assert "GPU535" not in run.output, run.output


def use_every_gpu(compute: Compute, api: Connection, report: Callable[[str], None]) -> None:
    """An instance for each GPU, none for one more; their consoles; and all GPUs free again."""
    host = compute.host
    report("nova-compute registers")
    offered = {function.address: "available" for function in gpu_functions(host) if function.id == GPU_ID}
    assert len(offered) == GPU_COUNT
    compute.wait("rows of the GPUs", lambda: compute.devices() or None, seconds=SERVICE_SECONDS)
    assert compute.devices() == offered
    compute.wait("host mapped to its cell", compute.registered, seconds=SERVICE_SECONDS)
    assert listeners.outside_loopback() == []

    report("an instance for each GPU")
    servers = [_create(compute, api, f"vm{number}") for number in range(GPU_COUNT)]
    assert [server.status for server in servers] == ["ACTIVE"] * GPU_COUNT, [server.fault for server in servers]
    assert compute.devices() == dict.fromkeys(offered, "allocated")
    report("one more, which finds no GPU")
    refused = _create(compute, api, "refused")
    assert refused.status == "ERROR"
    assert "No valid host" in refused.fault["message"]
    openstack(host, compute.cloud, "server", "list", "--long", "-c", "Name", "-c", "Status", "-c", "Host")
    # By name, the client shows no fault.
    openstack(host, compute.cloud, "server", "show", refused.id, "-f", "yaml")

    report("consoles")
    for server in servers:
        instances.wait_for_console(api, compute, server)
        output = openstack(host, compute.cloud, "console", "log", "show", server.name)
        assert listed(output).count(GPU_ID) == 1, output
    assert on_host(host, "sudo virsh list").count("running") == GPU_COUNT
    assert on_host(host, f"lspci -nnk -d {GPU_ID}").count("in use: vfio-pci") == GPU_COUNT

    report("delete")
    openstack(host, compute.cloud, "server", "delete", *(server.name for server in (*servers, refused)))
    compute.wait("servers deleted", lambda: not list(api.compute.servers()) or None, seconds=SERVICE_SECONDS)
    compute.wait("GPUs free", lambda: compute.devices() == offered or None, seconds=SERVICE_SECONDS)


def _create(compute: Compute, api: Connection, name: str) -> Server:
    chosen = ["--image", images.NAME, "--flavor", FLAVOR, "--no-network", "-c", "name", "-c", "status"]
    openstack(compute.host, compute.cloud, "server", "create", *chosen, name)
    return instances.built(api, compute, api.compute.find_server(name, ignore_missing=False))


def _gpustack(compute: Compute, *arguments: str) -> Run:
    spec_text, variables = spec(sections=SECTIONS), compute.cloud.variables()
    run = gpustack(compute.host, *arguments, spec_text=spec_text, variables=variables)
    assert run.code == 0, run.output
    return run


def _drop_ins(host: Machine, name: str) -> dict[str, str]:
    """What `nova render` wrote for one kind of host."""
    directory = host.directory / "rendered" / name / DROP_INS.lstrip("/")
    return {path.name: path.read_text() for path in directory.iterdir()}


def _of_the_host(host: Machine) -> frozenset[str]:
    return frozenset(line for line in configuration(host) if not any(path in line for path in OTHERS))

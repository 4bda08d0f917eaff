"""A cloud with two prepared hosts that continues from the cache: hosts with nova-compute, and the databases to them.

The hosts reach the control plane, and each other, at addresses that are the same in every run: QEMU connects them
with the ports that this run uses.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import GpustackError
from gpustack_demo.embedded.glance import pins
from gpustack_demo.embedded.process import free_port

from .. import playbooks, recipe, states
from ..commands import SPEC, SSH_OPTIONS, gpustack
from ..errors import LabError
from ..machine import Machine
from ..playbooks import Run, play, spec
from ..topology import Shape
from . import images, settings
from .compute import DROP_INS, UNIT, Compute
from .control_plane import RELEASE, ControlPlane

if TYPE_CHECKING:
    from ..conftest import Lab

FLAVOR = "g1.labgpu"
SECTIONS = f"""\
nova: {{release: "{RELEASE}"}}
flavors:
  {FLAVOR}: {{model: labgpu, vcpus: 1, ram: 256MiB, disk: 0}}
"""
SHAPE = Shape(memory_mib=3072)
CONTROL_PLANE = "10.0.2.100"
PORTS = {"identity": 5000, "placement": 8778, "image": 9292, "network": 9696, "messages": 5672}
HOSTS = {recipe.HOST_NAME: "10.0.2.101", "lab2": "10.0.2.102"}
"""The hosts, and where another one reaches their SSH."""
SERVICE_SECONDS = 900.0
SSH_CONFIG = "Host 10.0.2.*\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """The control plane and its hosts."""

    plane: ControlPlane
    computes: tuple[Compute, ...]

    def gpustack(self, *arguments: str) -> Run:
        """A command of gpustack that knows all hosts, in the directory of the first."""
        first, *others = (compute.host for compute in self.computes)
        text = spec(sections=SECTIONS, hosts=list(HOSTS))
        return gpustack(first, *arguments, spec_text=text, variables=self.plane.variables(), others=others)

    def must(self, *arguments: str) -> Run:
        """A command of gpustack that must succeed."""
        run = self.gpustack(*arguments)
        if run.code:
            raise LabError(f"gpustack {' '.join(arguments)} ended with code {run.code}:\n{run.output}")
        return run


@contextmanager
def two_hosts(lab: Lab) -> Iterator[Cloud]:
    """A cloud whose hosts have registered and offer their GPUs; a flavor and an image exist."""
    with ExitStack() as stack:
        yield _continued(lab, stack) or _made(lab, stack)


def _made(lab: Lab, stack: ExitStack) -> Cloud:
    prepared = lab.prepared_state(SHAPE)
    _build(lab, prepared, _state(lab, prepared))
    cloud = _continued(lab, stack)
    if cloud is None:
        raise LabError("the state that was kept just now does not work")
    return cloud


def _state(lab: Lab, prepared: Path) -> Path:
    here = Path(__file__)
    modules = ("compute", "control_plane", "images", "kernel", "kept", "rabbitmq", "settings")
    files = [here.with_name(f"{name}.py") for name in modules]
    files += [pins("2025.2"), here.with_name("inside"), Path(playbooks.__file__), *states.PRODUCT]
    return states.derived_directory(lab.image, prepared, "cloud", files)


def _build(lab: Lab, prepared: Path, state: Path) -> None:
    """Configure Nova on two copies of a prepared host, and keep both with the databases."""
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(directory=lab.directory / "first-control-plane", report=lab.report))
        cloud = _resume(lab, stack, plane, dict.fromkeys(HOSTS, prepared), "first-")
        lab.report("scan, nova render, nova.yml, flavor, image")
        for compute in cloud.computes:
            _name(compute.host)
            compute.configure()
        _join(cloud)
        with plane.connection() as api:
            cloud.must("flavor", "apply", SPEC, "--snapshot", "hosts.json", "--yes")
            images.upload(api, lab.image, lab.directory)
        lab.report("nova-compute registers on both hosts")
        _wait(cloud)

        def write(directory: Path) -> None:
            for compute in cloud.computes:
                compute.host.save(directory / compute.host.name)
                compute.host.kill()
            plane.keep(directory / "control-plane")

        lab.report(f"keep all of it in {state.name}")
        states.publish(state, write)


def _continued(lab: Lab, stack: ExitStack) -> Cloud | None:
    """The cloud from the cache, which runs until `stack` ends; None if the cache has none that works."""
    prepared = lab.prepared_directory(SHAPE)
    state = _state(lab, prepared)
    if not states.used(state, lab.report):
        return None
    lab.report(f"two hosts and their cloud go on from {state.name}")
    with ExitStack() as attempt:
        try:
            directory = lab.directory / "control-plane"
            kept = state / "control-plane"
            plane = attempt.enter_context(ControlPlane(directory=directory, report=lab.report, kept=kept))
            # First the conductor: the call of a host that nobody answers would block its service for minutes.
            plane.continue_nova()
            cloud = _resume(lab, attempt, plane, {name: state / name for name in HOSTS}, "")
            _wait(cloud)
        except (LabError, GpustackError) as error:
            lab.report(f"{error}\nthe state is removed")
            shutil.rmtree(state)
        else:
            stack.push(attempt.pop_all())
            return cloud
    shutil.rmtree(directory)
    for name in HOSTS:
        shutil.rmtree(lab.directory / name, ignore_errors=True)
    return None


def _resume(lab: Lab, stack: ExitStack, plane: ControlPlane, from_: Mapping[str, Path], prefix: str) -> Cloud:
    ports = {name: free_port() for name in HOSTS}
    forwards = {f"{CONTROL_PLANE}:{port}": plane.ports[kind] for kind, port in PORTS.items()}
    forwards |= {f"{address}:22": ports[name] for name, address in HOSTS.items()}
    computes = []
    for name, address in HOSTS.items():
        machine = lab.machine(f"{prefix}{name}", SHAPE, state=from_[name])
        machine = stack.enter_context(replace(machine, name=name, port=ports[name], forwards=forwards))
        access = settings.Access(ports=PORTS, address=CONTROL_PLANE, my_ip=address)
        computes.append(Compute(host=machine, cloud=plane, access=access))
    for compute in computes:
        compute.host.resume()
    return Cloud(plane=plane, computes=tuple(computes))


def _name(host: Machine) -> None:
    """Give a copy of the first host its own name, and root the key with which Nova copies disks."""
    hosts = f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n"
    host.ssh(["tee", "/etc/hosts"], stdin=hosts)
    host.ssh(["sh", "-c", 'echo "$1" >/etc/hostname; hostname "$1"', "sh", host.name])
    host.ssh(["sh", "-c", "umask 077; cat >/root/.ssh/id_ed25519"], stdin=host.image.login_key.read_text())
    host.ssh(["tee", "/root/.ssh/config"], stdin=SSH_CONFIG)


def _join(cloud: Cloud) -> None:
    """Give Nova's services the GPUs of the hosts: the control plane's by hand, the hosts' with the playbook."""
    first, *others = (compute.host for compute in cloud.computes)
    cloud.must("scan", *HOSTS, *SSH_OPTIONS, "--save", "hosts.json")
    cloud.must("nova", "render", SPEC, "--snapshot", "hosts.json", "--out", "rendered")
    rendered = first.directory / "rendered" / "control" / DROP_INS.lstrip("/")
    cloud.plane.start_nova({path.name: path.read_text() for path in rendered.iterdir()})
    run = play(first, "nova.yml", "-e", '{"gpustack_nova_services": ["compute"]}', sections=SECTIONS, others=others)
    if run.code:
        raise first.error(f"nova.yml ended with code {run.code}:\n{run.output}")


def _wait(cloud: Cloud) -> None:
    """Wait until every host's service is up, in its cell, and offers its GPUs."""
    for compute in cloud.computes:
        compute.wait(f"{UNIT} of {compute.host.name}", compute.up, seconds=SERVICE_SECONDS)
        compute.wait(f"cell of {compute.host.name}", compute.registered, seconds=SERVICE_SECONDS)
        compute.wait(f"GPUs of {compute.host.name}", compute.free, seconds=SERVICE_SECONDS)

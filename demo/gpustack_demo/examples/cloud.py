"""Starting a real Nova for the demo, with the example hosts as its computes."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.errors import GpustackError
from gpustack.files import write_atomic
from gpustack_demo.embedded.environment import Environment, ensure
from gpustack_demo.embedded.nova import Host, Nova, devices_of_snapshot
from gpustack_demo.embedded.templates import ensure_templates
from gpustack_demo.examples.devices import write_access
from gpustack_demo.examples.ssh_server import ExampleSshServer

if TYPE_CHECKING:
    from gpustack_demo.examples.stage import Stage

RELEASE = "2025.2"
"""The Nova that the demo runs."""
_TICK = 15.0
"""Seconds between two signs of life while something takes long."""


class NotInstalledError(GpustackError):
    """The release is not there, and can't be had."""


def install(say: Callable[[str], None]) -> Environment:
    """Nova, ready to run: from the cache, or installed now.

    :raises NotInstalledError: when it can't be installed.
    """
    try:
        began = time.monotonic()
        told = "this happens once, and may take some minutes"
        with repeatedly(_TICK, lambda: say(f"… at it for {time.monotonic() - began:.0f} s; {told}")):
            environment = ensure(RELEASE, say=say)
            ensure_templates(environment, say=say)
    except GpustackError as error:
        raise NotInstalledError(str(error)) from error
    return environment


def nova_of(directory: Path, snapshot: Path, rendered: Path) -> Nova:
    """A Nova with rendered configuration: each nova-compute of a snapshot's hosts with its own, the rest with
    ``control``.
    """
    return Nova(
        RELEASE,
        hosts=[_host(facts, rendered) for facts in _facts(snapshot)],
        config=[_drop_ins(rendered, "control")],
        keystone=True,
        directory=directory,
    )


def start_nova(stage: Stage, *, snapshot: str, rendered: str) -> None:
    """Start :func:`nova_of` for a stage, whose commands find the cloud and the ``openstack`` command from then on."""
    environment = install(stage.progress)
    directory = stage.directory / "cloud"
    nova = nova_of(directory, stage.directory / snapshot, stage.directory / rendered)
    stage.progress("starting Nova, Placement and Keystone")
    began = time.monotonic()
    stage.nova = stage.enter(nova)
    stage.progress(f"they are up after {time.monotonic() - began:.0f} s; their log is {nova.log}")
    write_access(nova, directory / "demo.json")
    stage.environment.update(OS_CLIENT_CONFIG_FILE=str(nova.clouds_yaml), OS_CLOUD="embedded")
    stage.program(environment.program("openstack"))


def answer_over_ssh(stage: Stage) -> tuple[str, ...]:
    """Let the example hosts answer over SSH which instances use which devices; return the SSH options."""
    if stage.nova is None:
        raise AssertionError("Nova runs")
    roots = {name: stage.directory / name for name in stage.nova.control.hosts()}
    write_domains(stage.nova, roots)
    server = stage.enter(ExampleSshServer(roots, stage.directory / "ssh"))
    return ("--ssh-config", str(server.config), "--known-hosts", str(server.known_hosts))


def write_domains(nova: Nova, roots: Mapping[str, Path]) -> None:
    """Write the status files that libvirt keeps of a host's running domains, into the directory of each host."""
    for name, root in roots.items():
        status = root / "run/libvirt/qemu"
        status.mkdir(parents=True, exist_ok=True)
        # Process 1 shows that no other process is hidden.
        (root / "proc/1/fd").mkdir(parents=True, exist_ok=True)
        running = {
            f"{domain['name']}.xml": nova.control.domain_xml(name, domain["uuid"])
            for domain in nova.control.domains(name)
            if domain["state"] == "running"
        }
        for path in status.glob("*.xml"):
            if path.name not in running:
                path.unlink()
        for file, xml in running.items():
            write_atomic(status / file, f"<domstatus state='running'>{xml}</domstatus>")


def _facts(path: Path) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["hosts"]
    return found


def _drop_ins(rendered: Path, target: str) -> Path:
    return rendered / target / "etc/nova/nova.conf.d"


def _host(facts: Mapping[str, Any], rendered: Path) -> Host:
    nodes = len(facts["numa_nodes"])
    return Host(
        name=facts["hostname"],
        pci=devices_of_snapshot(facts["pci"]),
        config=[_drop_ins(rendered, facts["hostname"])],
        numa_nodes=nodes,
        cpus_per_node=facts["cpu"]["logical"] // nodes,
        memory_mib=facts["memory_mib"],
    )


@contextlib.contextmanager
def repeatedly(seconds: float, do: Callable[[], object]) -> Iterator[None]:
    """Do something every so many seconds, meanwhile."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(seconds):
            do()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()

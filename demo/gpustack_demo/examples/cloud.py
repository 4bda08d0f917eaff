"""A real Nova for the demo, with the example hosts as its computes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import GpustackError
from gpustack.base.files import write_atomic
from gpustack.hosts.facts.store import read_snapshot
from gpustack.nova_options.config import read_files
from gpustack_demo.embedded import limits
from gpustack_demo.embedded.environment import Environment, ensure
from gpustack_demo.embedded.glance import ensure_glance
from gpustack_demo.embedded.nova import IMAGE, EmbeddedHost, EmbeddedNova, devices_of_snapshot
from gpustack_demo.embedded.templates import ensure_templates
from gpustack_demo.examples.devices import write_access
from gpustack_demo.examples.ssh_server import ExampleSshServer

if TYPE_CHECKING:
    from openstack.connection import Connection

Print = Callable[[str], None]
RELEASE = "2025.2"
"""The release of Nova in the demo."""
_PERIOD = 5.0
"""Seconds between two runs of nova-compute's periodic tasks, which cost CPU time; Nova's default is 60."""
_IMAGE_BYTES = 1 << 20
_TICK = 15.0
"""Seconds between two progress messages of a long installation."""


class NotInstalledError(GpustackError):
    """The release is missing and cannot be installed."""


def install(report: Print) -> Environment:
    """An environment with Nova and Glance, from the cache or newly installed.

    :raises NotInstalledError: if it cannot be installed.
    """
    try:
        began = time.monotonic()
        with repeatedly(_TICK, lambda: report(f"installing for {time.monotonic() - began:.0f} s, some minutes in all")):
            environment = ensure(RELEASE, report=report)
            ensure_templates(environment, report=report)
            ensure_glance(environment, report=report)
    except GpustackError as error:
        raise NotInstalledError(str(error)) from error
    return environment


def nova_of(directory: Path, snapshot: Sequence[Path], rendered: Path) -> EmbeddedNova:
    """A Nova with rendered configuration: each nova-compute has its host's own, the other services ``control``."""
    return EmbeddedNova(
        RELEASE,
        hosts=[_host(facts, rendered) for facts in read_snapshot(snapshot, keep=True).raw],
        config=[_drop_ins(rendered, "control")],
        keystone=True,
        limits=True,
        images=True,
        directory=directory,
    )


@contextlib.contextmanager
def running(base: Path, snapshot: Sequence[Path], rendered: Path) -> Iterator[tuple[EmbeddedNova, ExampleSshServer]]:
    """Run :func:`nova_of` in ``base/cloud``, with frequent periodic tasks, and SSH to its hosts below ``base``.

    :param snapshot: the files or directories with the facts of the hosts.
    :param rendered: the output of ``gpustack nova render``, of which Placement has its part too.
    """
    directory = base / "cloud"
    with contextlib.ExitStack() as stack:
        nova = stack.enter_context(nova_of(directory, snapshot, rendered))
        # Without its limits, Placement computes every choice of eight GPUs out of eight.
        settings = read_files(sorted((rendered / "control/etc/placement/placement.conf.d").glob("*.conf"))).settings
        nova.control.configure_placement({f"{setting.group}/{setting.name}": setting.value for setting in settings})
        with nova.connection() as admin:
            limits.register(admin)
            _upload(admin)
        write_access(nova, directory / "demo.json")
        roots = {name: base / name for name in nova.control.hosts()}
        server = stack.enter_context(
            ExampleSshServer(roots, base / "ssh", before=lambda name: write_domains(nova, name, roots[name]))
        )

        def tick() -> None:
            with contextlib.suppress(GpustackError, OSError, HTTPException):  # Nova is stopping
                nova.control.periodic()
                for name, root in roots.items():  # commands read the directories without SSH too
                    if root.is_dir():
                        write_domains(nova, name, root)

        stack.enter_context(repeatedly(_PERIOD, tick))
        yield nova, server


def _upload(admin: Connection) -> None:
    """Upload the image that Nova's test double of Glance has too, with its id and without properties."""
    options: dict[str, Any] = {"disk_format": "raw", "container_format": "bare", "visibility": "public"}
    admin.image.create_image(id=IMAGE, name="image", data=b"\0" * _IMAGE_BYTES, wait=True, **options)


def write_domains(nova: EmbeddedNova, name: str, root: Path) -> None:
    """Write libvirt's status files of a host's running domains into the directory of the host."""
    status = root / "run/libvirt/qemu"
    status.mkdir(parents=True, exist_ok=True)
    # An entry for process 1 shows that processes are not hidden (hidepid).
    (root / "proc/1/fd").mkdir(parents=True, exist_ok=True)
    running = {
        f"{domain['name']}.xml": nova.control.domain_xml(name, domain["uuid"])
        for domain in nova.control.domains(name)
        if domain["state"] == "running"
    }
    for path in status.glob("*.xml"):
        if path.name not in running:
            path.unlink(missing_ok=True)
    for file, xml in running.items():
        write_atomic(status / file, f"<domstatus state='running'>{xml}</domstatus>", mode=0o644)


def _drop_ins(rendered: Path, target: str) -> Path:
    return rendered / target / "etc/nova/nova.conf.d"


def _host(facts: Mapping[str, Any], rendered: Path) -> EmbeddedHost:
    nodes = len(facts["numa_nodes"])
    drop_ins = _drop_ins(rendered, facts["hostname"])
    # On a real host, this directory is the default.
    providers = f"[compute]\nprovider_config_location = {drop_ins.parent / 'provider_config'}\n"
    return EmbeddedHost(
        name=facts["hostname"],
        pci=devices_of_snapshot(facts["pci"]),
        config=[providers, drop_ins],
        numa_nodes=nodes,
        cpus_per_node=facts["cpu"]["logical"] // nodes,
        memory_mib=facts["memory_mib"],
    )


@contextlib.contextmanager
def repeatedly(seconds: float, do: Callable[[], object]) -> Iterator[None]:
    """Call a function every ``seconds`` seconds while the context lasts."""
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

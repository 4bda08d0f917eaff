"""The functions of ``gpustack example …``; :mod:`gpustack.cli.example` calls them by name."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpustack.base.errors import CloudError, UsageError
from gpustack.base.files import write_atomic
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.inventory import inventory
from gpustack_demo.examples.machine import Machine
from gpustack_demo.examples.running import recorded, running_clouds, stop

__all__ = ["HOSTS", "cloud", "clouds", "create", "leak", "stop"]

Print = Callable[[str], None]

HOSTS: Mapping[str, Callable[[str], Machine]] = {
    "gpu01": hosts.talk_host,
    "gpu02": hosts.nvswitch_host,
    "gpu03": hosts.shared_group_host,
    "gpu04": hosts.talk_host,
    "gpu05": hosts.rhel9_host,
    "gpu06": hosts.rhel8_host,
    "gpu07": hosts.systemd_boot_host,
    "gpu08": hosts.epyc_host,
}
"""The example hosts by their names in the tutorial."""


def create(directory: Path, report: Print) -> None:
    """Write the example hosts and ``inventory.yaml`` into a new or empty directory.

    :raises UsageError: when the directory is not empty.
    """
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError("the directory is not empty", where=str(directory), remedy="choose a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    place = directory.resolve()
    for name, machine in HOSTS.items():
        described = machine(name)
        write_host(place / name, described)
        report(f"{name}: {described.vendor} {described.product}, {described.os_release['PRETTY_NAME']}")
    write_atomic(place / "inventory.yaml", inventory(place, HOSTS), mode=0o644)


def cloud(snapshot: Sequence[Path], rendered: Path, report: Print, wait: Callable[[], object] | None = None) -> None:
    """Run a Nova with the hosts of snapshots, beside the first one, until Ctrl-C or until ``wait`` returns.

    :param rendered: the output of ``gpustack nova render``.
    :raises GpustackError: when Nova cannot be installed or started.
    """
    from gpustack_demo.embedded.releases import cache_dir
    from gpustack_demo.examples.cloud import RELEASE, install, running

    for path in (*snapshot, rendered):
        if not path.exists():
            raise UsageError("not found", where=str(path), remedy="run gpustack scan --save and gpustack nova render")
    base = snapshot[0].resolve().parent
    if (base / "cloud").exists():
        place = base / "cloud"
        remedy = f"gpustack example stop {shlex.quote(str(place))}"
        raise UsageError("the directory of an earlier cloud exists", where=str(place), remedy=remedy)
    report(
        f"This installs Nova {RELEASE}, Placement, Keystone and Glance from PyPI into {cache_dir()} unless they are"
        " there, and runs them on loopback. Below Nova is its own stand-in for libvirt."
    )
    environment = install(report)
    with recorded(base / "cloud"), running(base, snapshot, rendered.resolve()) as (nova, server):
        report(f"Nova runs; its log is {nova.log}. SSH to the example hosts: {server.config}")
        report("In another terminal:\n")
        for name, value in (
            ("OS_CLIENT_CONFIG_FILE", str(nova.clouds_yaml)),
            ("OS_CLOUD", "embedded"),
            ("PATH", f"{environment.program('openstack').parent}{os.pathsep}$PATH"),
        ):
            report(f'export {name}="{value}"')
        report(f"\nCtrl-C stops Nova; from elsewhere: gpustack example stop {shlex.quote(str(base / 'cloud'))}")
        with contextlib.suppress(KeyboardInterrupt):
            (wait or threading.Event().wait)()


def clouds() -> list[tuple[str, int]]:
    """The directory and process of each cloud that runs."""
    return [(cloud.directory, cloud.pid) for cloud in running_clouds()]


def leak(access: Path, name: str, report: Print) -> None:
    """Migrate an instance, and make libvirt fail on the source host when the migration is confirmed.

    :param access: ``cloud/demo.json``, which :func:`cloud` wrote.
    :raises GpustackError: when the cloud or the instance does not exist.
    """
    import openstack.connection
    from openstack.config import loader

    from gpustack.cloud.session import translated_errors
    from gpustack_demo.embedded.control import Control
    from gpustack_demo.embedded.servers import settled, until

    if not access.is_file():
        remedy = "name the directory of a cloud of `gpustack example list` with --cloud, or start one"
        raise UsageError("not found", where=str(access), remedy=remedy)
    reach = json.loads(access.read_text(encoding="utf-8"))
    control = Control(reach["port"], reach["token"])
    files = [str(access.parent / "clouds.yaml")]
    config = loader.OpenStackConfig(config_files=files, secure_files=[], vendor_files=[], load_envvars=False)
    client = openstack.connection.Connection(config=config.get_one("embedded"))
    fit = f"use an instance that is ACTIVE: `openstack server show {shlex.quote(name)}`"
    with translated_errors(f"migrate {name}", fit), client as connection:
        server = connection.compute.find_server(name, all_projects=True)
        if server is None:
            raise UsageError(f"there is no instance {name}")
        server = connection.compute.get_server(server)
        source = server.compute_host
        target = next((host for host in control.hosts() if host != source), None)
        if target is None:
            raise UsageError("the cloud has one host; a migration needs two")
        report(f"Migrating {name} from {source} to {target}.")
        connection.compute.migrate_server(server, host=target)
        if settled(connection, server).status != "VERIFY_RESIZE":
            remedy = f"`openstack server event list {shlex.quote(name)}` shows the steps; free as many GPUs on {target}"
            raise CloudError(f"Nova did not migrate {name} to {target}", where=source, remedy=remedy)
        control.fail(source, "confirm", when="after", error="builtins.ConnectionResetError", message="libvirt is gone")
        connection.compute.confirm_server_resize(server)
        until(connection, server, lambda one: one.status == "ERROR" and one.task_state is None)
        control.clear_faults(source)
    report(f"{name} runs on {target}. libvirt failed on {source} while the migration was confirmed.")

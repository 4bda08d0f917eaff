"""``cleanup.yml`` stops a nova-compute only where something is repaired, and never where that could do harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest
import sqlalchemy as sa

from support import warm
from support.cellfile import CellFile, nova_conf
from support.hostile_hosts import Hostile, forged
from support.lowest_ansible import environment_of, supported
from support.playbook_place import Place
from support.sshd import Sshd

ROOT = Path(__file__).parents[3]
PROGRAM = str(Path(sys.executable).with_name("ansible-playbook"))


STAND_IN = """#!/bin/sh
# Of systemctl: only openstack-nova-compute.service is active; stops and starts are recorded.
case $1 in
    is-active) [ "$3" = openstack-nova-compute.service ] ;;
    *) echo "$*" >>STOPPED ;;
esac
"""


def play(
    directory: Path, conf: Path, hosts: list[str], stopped: Path, *chosen: str, **extra: list[str]
) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run it on hosts whose nova-compute is stopped and started by a line in a file; what came of it by host."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": warm.outside(), "ansible_become": False}
    commands = {
        f"gpustack_cleanup_{verb}_command": ["sh", "-c", f"echo {verb} {{{{ inventory_hostname }}}} >> {stopped}"]
        for verb in ("stop", "start")
    }
    more = {"gpustack_cleanup_config": str(conf), "gpustack_cleanup_silence": 0}
    ssh = ["--ssh-config", str(directory / "config"), "--known-hosts", str(directory / "known"), "--wait", "0"]
    ssh += ["--timeout", "120"]
    unblock = {"gpustack_cleanup_unblock": ["blocked/0000:81:00.0", "cut-off/0000:81:00.0"]}
    variables = {**commands, **more, **unblock, "gpustack_cleanup_arguments": [*ssh, *chosen], **extra}
    inventory = directory / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, local), "vars": variables}}))
    (directory / "ansible.cfg").touch()
    environment = {**os.environ, "ANSIBLE_CONFIG": str(directory / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment["XDG_STATE_HOME"] = str(directory / "state")
    command = [PROGRAM, "-i", str(inventory), str(ROOT / "playbooks" / "cleanup.yml"), "-l"]
    return {host: warm.run([*command, host], cwd=directory, env=environment) for host in hosts}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[None]:
    """An SSH server for the host ``blocked``, which has a GPU and no guests; ``cut-off`` can't be reached."""
    device = tmp_path / "root/sys/bus/pci/devices/0000:81:00.0"
    for directory in (device, tmp_path / "root/proc/1/fd", tmp_path / "root/run/libvirt/qemu"):
        directory.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "device").write_text("0x11b4\n")
    kernel = tmp_path / "root/proc/sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "hostname").write_text("blocked\n")
    server = Sshd(directory=tmp_path / "ssh")
    server.start()
    keys = tmp_path / "ssh/authorized_keys"
    command = f'command="{quote(sys.executable)} -I -S - --root {tmp_path}/root" '
    keys.write_text(command + keys.read_text().split(" ", 1)[1])
    (tmp_path / "known").write_text(server.known())
    (tmp_path / "config").write_text(
        f"Host blocked\n HostName 127.0.0.1\n Port {server.port}\n IdentityFile {server.client_key}\n"
        "Host cut-off\n HostName 127.0.0.1\n Port 1\n"
    )
    yield
    server.stop()


@pytest.mark.usefixtures("hosts")
def test_nova_compute_is_stopped_only_where_that_repairs_something_and_does_no_harm(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for name in ("blocked", "cut-off", "pinned", "lacking"):
        node = cell.host(name)
        if name in ("blocked", "cut-off"):
            cell.device(node, "0000:81:00.0", "unavailable")
        elif name == "pinned":  # a repair that needs no stop
            moved = cell.instance("moved", "elsewhere")
            cell.device(node, "0000:81:00.0", "allocated", instance_uuid=moved, request_id="x")
            cell.move(moved, name, "elsewhere", "error")
        else:
            cell.device(node, "0000:81:00.0", "unavailable")
            cell.device(node, "0000:82:00.0")  # it is free by its row
            cell.instance("vm", name)
    conf = nova_conf(tmp_path, {"cell1": cell.url}, service_down_time=3600)

    blocked = play(tmp_path, conf, ["blocked"], tmp_path / "stopped", "--class", "F")["blocked"]  # nothing was asked
    assert blocked.returncode == 0, blocked
    assert not (tmp_path / "stopped").exists()

    by_hand = {"gpustack_cleanup_stop_command": ["false"], "gpustack_cleanup_start_command": []}
    failed = play(tmp_path, conf, ["blocked"], tmp_path / "stopped", **by_hand)["blocked"]
    assert failed.returncode == 2, failed
    assert "TASK [nova_gpustack.passthrough.gpustack_cleanup : Repair]" not in failed.stdout, failed
    assert not (tmp_path / "stopped").exists()

    ran = play(tmp_path, conf, ["blocked", "cut-off", "pinned", "lacking"], tmp_path / "stopped")

    codes = {host: process.returncode for host, process in ran.items()}
    assert codes == {"blocked": 0, "cut-off": 2, "pinned": 0, "lacking": 0}, ran
    assert "class H (blocked) on blocked" in ran["blocked"].stdout
    assert "make cut-off reachable" in ran["cut-off"].stdout
    assert "class L (missing-row) on lacking" in ran["lacking"].stdout
    assert (tmp_path / "stopped").read_text().splitlines() == ["stop blocked", "start blocked"]
    with cell.engine.connect() as connection:
        states = connection.execute(sa.text("SELECT status FROM pci_devices ORDER BY id")).scalars().all()
    assert states == ["available", "unavailable", "allocated", "unavailable", "available"], ran["blocked"].stdout


RUNS = [("newest", "none"), ("lowest", "first")]
ALL = [(ansible, kind) for ansible in ("lowest", "newest") for kind in ("none", "first")]


@pytest.mark.parametrize(("ansible", "attack"), ALL if "GPUSTACK_ATTACKS" in os.environ else RUNS)
@pytest.mark.usefixtures("hosts")
def test_the_printed_commands_find_and_restart_the_unit(tmp_path: Path, ansible: str, attack: str) -> None:
    """The inventory sets only what the test's machine needs: where the hosts are, and no wait.

    A hostile host poses as another one, whose rows must stay as they are.
    """
    if not supported(ansible):
        pytest.skip("this Python does not run the lowest ansible-core")
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("blocked"), "0000:81:00.0", "unavailable")
    cell.device(cell.host("talk"), "0000:82:00.0", "unavailable")
    conf = nova_conf(tmp_path, {"cell1": cell.url}, service_down_time=3600)
    stopped, program = tmp_path / "stopped", tmp_path / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(STAND_IN.replace("STOPPED", str(stopped)))
    program.chmod(0o755)
    hostile = Hostile(Place(path=tmp_path, templates=tmp_path))
    hostile.facts = {**forged(tmp_path), "gpustack_cleanup_unblock": ["talk/0000:82:00.0"]}
    hostile.arm(attack)
    python = str(tmp_path / "python")
    local = {"ansible_connection": "local", "ansible_python_interpreter": python, "ansible_become": False}
    ssh = ["--ssh-config", str(tmp_path / "config"), "--known-hosts", str(tmp_path / "known"), "--wait", "0"]
    ssh += ["--timeout", "120"]
    variables = {"gpustack_cleanup_arguments": ssh, "gpustack_cleanup_silence": 0}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"blocked": {**local, **variables}}}}))
    (tmp_path / "ansible.cfg").touch()
    environment = {**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    environment |= {"PYTHONWARNINGS": "ignore", **environment_of(ansible)}
    printed = [PROGRAM, "-i", str(inventory), str(ROOT / "playbooks/cleanup.yml"), "-l", "blocked"]
    printed += ["-e", f"gpustack_cleanup_config={conf}"]
    unblock = ["-e", '{"gpustack_cleanup_unblock": ["blocked/0000:81:00.0"]}']

    def run(*arguments: str) -> None:
        process = warm.run([*printed, *arguments], cwd=tmp_path, env=environment)
        assert process.returncode == 0, process.stdout + process.stderr

    run(*([*unblock, "--check"] if attack == "none" else ()))  # without --unblock, there is no stale row
    assert not stopped.exists()
    run(*unblock)
    assert stopped.read_text().splitlines() == [f"{verb} openstack-nova-compute.service" for verb in ("stop", "start")]
    with cell.engine.connect() as connection:
        states = connection.execute(sa.text("SELECT status FROM pci_devices ORDER BY id")).scalars().all()
    assert states == ["available", "unavailable"]


@pytest.mark.parametrize(
    "words", [["--db-url", "mysql://nova:Zq7xw0rd@db/nova"], ["--db=mysql://nova:Zq7xw0rd@db/nova"]]
)
def test_a_password_among_the_arguments_is_refused_and_not_printed(tmp_path: Path, words: list[str]) -> None:
    conf = nova_conf(tmp_path, {})
    ran = play(tmp_path, conf, ["gpu1"], tmp_path / "stopped", *words, gpustack_cleanup_unblock=[])["gpu1"]
    assert ran.returncode == 2, ran
    assert "gpustack_cleanup_arguments has --db-url, and Ansible prints arguments: " in ran.stdout
    assert "Zq7xw0rd" not in ran.stdout + ran.stderr

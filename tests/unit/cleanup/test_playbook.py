"""``cleanup.yml`` stops a nova-compute only where something is repaired, and never where that could do harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa
from cellfile import CellFile, nova_conf

ROOT = Path(__file__).parents[3]
PROGRAM = str(Path(sys.executable).with_name("ansible-playbook"))


def play(directory: Path, conf: Path, hosts: list[str], stopped: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run it on hosts whose nova-compute is stopped and started by a line in a file; what came of it by host."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    commands = {
        f"gpustack_cleanup_{verb}_command": ["sh", "-c", f"echo {verb} {{{{ inventory_hostname }}}} >> {stopped}"]
        for verb in ("stop", "start")
    }
    more = {"gpustack_cleanup_config": str(conf), "gpustack_cleanup_silence": 0}
    variables = {**commands, **more, "gpustack_cleanup_arguments": ["--no-hypervisor", "--wait", "0"]}
    inventory = directory / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, local), "vars": variables}}))
    (directory / "ansible.cfg").touch()
    environment = {**os.environ, "ANSIBLE_CONFIG": str(directory / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment["XDG_STATE_HOME"] = str(directory / "state")
    command = [PROGRAM, "-i", str(inventory), str(ROOT / "playbooks" / "cleanup.yml"), "-l"]
    return {
        host: subprocess.run([*command, host], env=environment, capture_output=True, text=True, check=False)
        for host in hosts
    }


def test_nova_compute_is_stopped_only_where_that_repairs_something_and_does_no_harm(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for name, lacks in (("blocked", False), ("pinned", True), ("busy", True), ("told", True)):
        node = cell.host(name)
        if lacks:
            cell.device(node, "0000:82:00.0")  # it stands as free
            cell.instance(f"vm-of-{name}", name, task_state="powering-on" if name == "busy" else None)
        if name == "blocked":
            cell.device(node, "0000:81:00.0", "unavailable")
        elif name in ("pinned", "busy"):
            moved = cell.instance(f"moved-from-{name}", "elsewhere")
            cell.device(node, "0000:81:00.0", "allocated", instance_uuid=moved, request_id="x")
            cell.move(moved, name, "elsewhere", "error")
    conf = nova_conf(tmp_path, {"cell1": cell.url})

    ran = play(tmp_path, conf, ["blocked", "pinned", "busy", "told"], tmp_path / "stopped")

    assert {host: done.returncode for host, done in ran.items()} == {"blocked": 0, "pinned": 2, "busy": 2, "told": 0}, (
        ran
    )
    assert "class H on blocked" in ran["blocked"].stdout
    assert "vm-of-pinned lacks a device" in ran["pinned"].stdout
    assert "vm-of-busy lacks a device" in ran["busy"].stdout  # and is protected: plan shows that with --all alone
    assert "class L on told" in ran["told"].stdout
    assert (tmp_path / "stopped").read_text().splitlines() == ["stop blocked", "start blocked"]
    with cell.engine.connect() as connection:
        states = connection.execute(sa.text("SELECT status FROM pci_devices ORDER BY id")).scalars().all()
    assert states == ["available", "available", "allocated", "available", "allocated", "available"], ran[
        "blocked"
    ].stdout

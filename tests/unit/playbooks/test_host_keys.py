"""Settings that switch the check of SSH host keys off: gpustack refuses them, and warns an operator of Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.base.files import collection_dir
from support.lowest_ansible import environment_of, supported
from support.playbook_place import Place, environment

RECORDER = """\
#!/bin/sh
echo "$*" >> "$0.calls"
exit 255
"""
"""A stand-in for ssh that reaches no host."""
LAX = "-o StrictHostKeyChecking=no"
HOSTS: dict[str, dict[str, object]] = {
    "arguments": {"ansible_ssh_args": LAX},
    "flag": {"ansible_ssh_args": "-C", "ansible_host_key_checking": False},
    "paramiko": {"ansible_connection": "paramiko_ssh", "ansible_paramiko_host_key_checking": False},
    "socket": {"ansible_control_path": "/tmp/%%h"},
}
CHECKED = {"ansible_ssh_common_args": LAX, "ansible_host_key_checking": False}
"""Without effect: gpustack's arguments of ssh come first."""


def write(place: Place, hosts: dict[str, dict[str, object]]) -> Path:
    """Write the inventory; return ssh's stand-in."""
    place.spec("version: 1\nmodels: {k4200: {match: {vendor: '10de', product: '11b4'}}}\nhosts: {'*': [k4200]}\n")
    recorder = place.path / "ssh"
    recorder.write_text(RECORDER, encoding="utf-8")
    recorder.chmod(0o755)
    common = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_become": False}
    inventory = {"all": {"hosts": hosts, "vars": {**common, "ansible_ssh_executable": str(recorder)}}}
    (place.path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    return recorder


def calls(recorder: Path) -> list[str]:
    """The connections that were tried."""
    path = recorder.with_name("ssh.calls")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_gpustack_refuses_hosts_before_it_connects(place: Place) -> None:
    recorder = write(place, {**HOSTS, "checked": CHECKED})
    process = subprocess.run(
        [
            *(sys.executable, "-m", "gpustack", "host", "verify", "gpustack.yaml", "-f", "json"),
            *("-i", "inventory.json", "--log", "the.log"),
        ],
        cwd=place.path,
        env=environment(place.path),
        capture_output=True,
        text=True,
        check=False,
    )
    results = {result["host"]: result for result in json.loads(process.stdout)}
    missing = "the connection plugin 'paramiko_ssh' was not found"  # since ansible-core 2.21
    refused = {host for host in HOSTS if "GPU483" in str(results[host])}
    if missing in str(results["paramiko"]):
        refused.add("paramiko")
    assert refused == {*HOSTS}, process.stdout
    assert results["checked"]["outcome"] == "unreachable"
    assert calls(recorder)
    assert all(call.startswith("-o StrictHostKeyChecking=yes ") for call in calls(recorder))


VERSIONS = [version for version in ("newest", "lowest") if supported(version)]


@pytest.mark.parametrize("version", VERSIONS if "GPUSTACK_ATTACKS" in os.environ else VERSIONS[-1:])
def test_an_operator_of_ansible_decides_and_is_warned_once(place: Place, version: str) -> None:
    recorder = write(place, {"one": {}, "two": {}})
    (place.path / "ansible.cfg").write_text("[defaults]\nhost_key_checking = False\n", encoding="utf-8")
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [
        program,
        "-i",
        "inventory.json",
        collection_dir() / "playbooks/plan.yml",
        "-e",
        "gpustack_spec=gpustack.yaml",
    ]
    process = subprocess.run(
        command,
        cwd=place.path,
        env={**environment(place.path), **environment_of(version)},
        capture_output=True,
        text=True,
        check=False,
    )
    output = process.stdout + process.stderr
    assert output.count("GPU483: the connection does not check the SSH host key") == 1, output
    assert any(LAX in call for call in calls(recorder))
    assert "unreachable=1" in output

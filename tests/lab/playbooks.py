"""Runs the project's playbooks on the lab's host, as its operator would."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import recipe, topology
from .machine import Machine

PROJECT = Path(__file__).resolve().parents[2]
PLAYBOOK_TIMEOUT = 2400.0


def spec(addresses: Sequence[str] = (), sections: str = "", hosts: Sequence[str] = (recipe.HOST_NAME,)) -> str:
    """A gpustack.yaml that passes the hosts' GPUs through: all of them, or those at `addresses`; and more sections."""
    groups = "".join(f"  {name}: [labgpu]\n" for name in hosts)
    vendor, product = topology.GPU_ID.split(":")
    chosen = f", addresses: {json.dumps(list(addresses))}" if addresses else ""
    return f"""\
version: 1
models:
  labgpu:
    match: {{vendor: "{vendor}", product: "{product}"{chosen}}}
    driver: vfio-pci
hosts:
{groups}{sections}"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one ansible-playbook did."""

    code: int
    output: str

    def count(self, counter: str) -> int:
        """A number of the recap: ok, changed, unreachable, failed …"""
        match = re.search(rf"^{recipe.HOST_NAME}\s*:.*\b{counter}=(\d+)", self.output, flags=re.MULTILINE)
        assert match, f"no recap with '{counter}' in:\n{self.output}"
        return int(match[1])


def inventory(*hosts: Machine) -> str:
    """An inventory of the hosts: an operator with sudo, host keys checked."""
    return "all:\n  hosts:\n" + "".join(map(_inventory_entry, hosts))


def _inventory_entry(host: Machine) -> str:
    options = [
        *("-F", "none", "-o", f"UserKnownHostsFile={host.known_hosts}", "-o", "GlobalKnownHostsFile=none"),
        *("-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes"),
    ]
    return f"""\
    {host.name}:
      ansible_host: 127.0.0.1
      ansible_port: {host.port}
      ansible_user: {recipe.OPERATOR}
      ansible_ssh_private_key_file: {host.image.login_key}
      ansible_ssh_common_args: {shlex.join(options)}
      ansible_ssh_pipelining: true
      ansible_python_interpreter: /usr/bin/python3
"""


def play(
    host: Machine,
    playbook: str,
    *arguments: str,
    addresses: Sequence[str] = (),
    sections: str = "",
    others: Sequence[Machine] = (),
    text: str = "",
) -> Run:
    """Runs playbooks/`playbook` on a host and others; the output is kept beside its serial log.

    The spec is `text`, else the lab's.
    """
    directory = host.directory
    hosts = (host, *others)
    (directory / "inventory.yml").write_text(inventory(*hosts))
    (directory / "gpustack.yaml").write_text(text or spec(addresses, sections, [each.name for each in hosts]))
    argv = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", str(directory / "inventory.yml"), str(PROJECT / "playbooks" / playbook)),
        *("-e", f"gpustack_spec={directory / 'gpustack.yaml'}", *arguments),
    ]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_TIMEOUT": "30"}
    path = directory / "ansible.log"
    with path.open("a+") as log:
        log.write(f"$ {shlex.join(argv)}\n")
        log.flush()
        start = log.tell()
        try:
            process = subprocess.run(
                argv,
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=PLAYBOOK_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise host.error(f"{playbook} did not end in time; see {path}") from None
        log.seek(start)
        output = log.read()
    return Run(code=process.returncode, output=output)


def last_task(host: Machine) -> str:
    """The name of the task that the last playbook began last."""
    names = re.findall(r"^TASK \[(.*?)\]", (host.directory / "ansible.log").read_text(), flags=re.MULTILINE)
    return names[-1].removeprefix("gpustack : ") if names else "the first connection"

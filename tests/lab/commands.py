"""Runs `gpustack host …` against the lab's host over SSH, as its operator would."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import recipe
from .machine import Machine
from .playbooks import PLAYBOOK_TIMEOUT, PROJECT, Run, inventory, spec


def gpustack_host(host: Machine, command: str, *arguments: str, addresses: Sequence[str] = ()) -> Run:
    """Runs `gpustack host COMMAND` with the lab's spec; what it says is kept beside the serial log.

    `plan` logs in by an SSH configuration, the others by an inventory.
    """
    directory = host.directory
    (directory / "gpustack.yaml").write_text(spec(addresses))
    (directory / "inventory.yml").write_text(inventory(host))
    (directory / "ssh_config").write_text(
        f"Host {recipe.HOST_NAME}\n HostName 127.0.0.1\n Port {host.port}\n User {recipe.OPERATOR}\n"
        f" IdentityFile {host.image.login_key}\n IdentitiesOnly yes\n UserKnownHostsFile {host.known_hosts}\n"
        " GlobalKnownHostsFile none\n"
    )
    argv = [str(Path(sys.executable).with_name("gpustack")), "host", command]
    argv += ["gpustack.yaml"] if command != "undo" else []
    if command == "plan":
        argv += [recipe.HOST_NAME, "--sudo", "--ssh-config", "ssh_config", "--timeout", "120"]
    else:
        argv += ["-i", "inventory.yml", "--log", "host.log"]
    process = subprocess.run(
        [*argv, *arguments],
        cwd=directory,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_TIMEOUT": "30", "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PLAYBOOK_TIMEOUT,
        check=False,
    )
    with (directory / "commands.log").open("a") as log:
        log.write(f"$ {shlex.join([*argv, *arguments])}\n{process.stdout}[{process.returncode}]\n")
    return Run(code=process.returncode, output=process.stdout)

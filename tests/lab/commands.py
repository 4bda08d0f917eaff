"""Runs gpustack's commands against the lab's host over SSH, as its operator would."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from . import recipe
from .machine import Machine
from .playbooks import PROJECT, Run, inventory, spec
from .recording import typed

SPEC = "gpustack.yaml"
SSH_OPTIONS = ("--sudo", "--ssh-config", "ssh_config", "--timeout", "120")


def gpustack_host(host: Machine, command: str, *arguments: str, addresses: Sequence[str] = ()) -> Run:
    """Runs `gpustack host COMMAND` with the lab's spec.

    `plan` logs in by an SSH configuration, the others by an inventory.
    """
    argv = ["host", command]
    argv += [SPEC] if command != "undo" else []
    if command == "plan":
        argv += [recipe.HOST_NAME, *SSH_OPTIONS]
    else:
        argv += ["-i", "inventory.yml", "--log", "host.log"]
    return gpustack(host, *argv, *arguments, spec_text=spec(addresses))


def gpustack(
    host: Machine,
    *arguments: str,
    spec_text: str,
    variables: Mapping[str, str] = MappingProxyType({}),
    others: Sequence[Machine] = (),
) -> Run:
    """Runs a command of gpustack in a directory with spec, inventory and SSH configuration of a host, and of others.

    Its output is kept beside the serial log of the first.
    """
    directory = host.directory
    (directory / SPEC).write_text(spec_text)
    (directory / "inventory.yml").write_text(inventory(host, *others))
    (directory / "ssh_config").write_text("".join(map(ssh_entry, (host, *others))))
    argv = [str(Path(sys.executable).with_name("gpustack")), *arguments]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_TIMEOUT": "30", "PYTHONPATH": str(PROJECT)}
    run = typed(directory, argv, {**environment, **variables})
    with (directory / "commands.log").open("a") as log:
        log.write(f"$ {shlex.join(argv)}\n{run.output}[{run.code}]\n")
    return run


def ssh_entry(host: Machine) -> str:
    """The host in an SSH configuration."""
    return (
        f"Host {host.name}\n HostName 127.0.0.1\n Port {host.port}\n User {recipe.OPERATOR}\n"
        f" IdentityFile {host.image.login_key}\n IdentitiesOnly yes\n UserKnownHostsFile {host.known_hosts}\n"
        " GlobalKnownHostsFile none\n"
    )

"""What an operator types and sees in the lab: a JSON document for each command, in the host's `recording.jsonl`.

`tools/complete-path` makes a page of the documentation from it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .machine import Machine
from .playbooks import PLAYBOOK_TIMEOUT, Run, play

if TYPE_CHECKING:
    from .cloud.control_plane import ControlPlane

NAME = "recording.jsonl"


def typed(directory: Path, argv: Sequence[str], environment: Mapping[str, str]) -> Run:
    """Run a program in the host's directory and record it."""
    started = time.time()
    process = subprocess.run(
        argv,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PLAYBOOK_TIMEOUT,
        check=False,
    )
    run = Run(code=process.returncode, output=process.stdout)
    _record(directory, argv, run, started)
    return run


def played(host: Machine, playbook: str, *arguments: str, sections: str) -> Run:
    """Run a playbook as `play` does, and record it."""
    log = host.directory / "ansible.log"
    before = len(log.read_text()) if log.exists() else 0
    started = time.time()
    run = play(host, playbook, *arguments, sections=sections)
    command = log.read_text()[before:].splitlines()[0].removeprefix("$ ")
    _record(host.directory, shlex.split(command), run, started)
    return run


def openstack(host: Machine, cloud: ControlPlane, *arguments: str) -> str:
    """What `openstack` prints; it must succeed."""
    program = str(cloud.environment.program("openstack"))
    client = {name: value for name, value in cloud.variables().items() if name.startswith("OS_")}
    return _output(host, [program, *arguments], {**cloud.environment.variables(), **client})


def on_this_machine(host: Machine, *argv: str) -> str:
    """What a command in the host's directory prints; it must succeed."""
    return _output(host, argv, os.environ)


def on_host(host: Machine, command: str) -> str:
    """What a command on the host prints, by the SSH configuration that gpustack uses; it must succeed."""
    return on_this_machine(host, "ssh", "-F", "ssh_config", host.name, command)


def _output(host: Machine, argv: Sequence[str], environment: Mapping[str, str]) -> str:
    run = typed(host.directory, argv, environment)
    if run.code:
        raise host.error(f"{shlex.join(argv)} ended with code {run.code}:\n{run.output}")
    return run.output


def _record(directory: Path, argv: Sequence[str], run: Run, started: float) -> None:
    step = {
        "command": shlex.join([Path(argv[0]).name, *argv[1:]]),
        "started": started,
        "seconds": time.time() - started,
        "code": run.code,
        "output": run.output,
    }
    with (directory / NAME).open("a") as file:
        file.write(json.dumps(step) + "\n")

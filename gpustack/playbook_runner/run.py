"""Runs ``ansible-playbook``: the one module of this package that starts a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpustack.errors import ApplyError, UsageError
from gpustack.files import share_dir
from gpustack.playbook_runner.configuration import configuration
from gpustack.playbook_runner.log import printable_log
from gpustack.playbook_runner.record import Record

_TAIL = 12
_NO_MATCH = b"Specified inventory, host pattern and/or --limit leaves us with no hosts to target"
_NO_HOSTS = "no host of the inventory is meant"  # Ansible itself refuses a limit that no host fits


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a playbook is called with.

    :param playbook: its name: ``prepare``.
    :param inventory: the inventory's file or directory, or what else Ansible's ``-i`` takes.
    :param limit: a host pattern, or ``@FILE``.
    :param variables: Ansible variables of highest precedence.
    :param arguments: more arguments of ``ansible-playbook``.
    """

    playbook: str
    inventory: str
    limit: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    check: bool = False

    def argv(self) -> list[str]:
        """The command. It is of the environment that gpustack itself runs in, since the plug-ins need gpustack."""
        limit = [f"--limit={self.limit}"] if self.limit else []
        check = ["--check", "--diff"] if self.check else ["--diff"]
        return [
            *(sys.executable, "-P", "-m", "ansible", "playbook"),  # -P: no module of the current directory
            f"--inventory={self.inventory}",
            *limit,
            *check,
            *(f"--extra-vars={json.dumps(dict(self.variables))}",),
            *self.arguments,
            str(share_dir("playbooks") / f"{self.playbook}.yml"),
        ]


def environment(descriptor: int, directory: Path) -> dict[str, str]:
    """The environment: the operator's, with host keys checked and a log without colour.

    :param directory: a private directory.
    """
    return {
        **configuration(os.environ, Path.cwd()).environment(os.environ, directory),
        "GPUSTACK_EVENTS_FD": str(descriptor),
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


def play(call: Call, log: Path, directory: Path, listener: Callable[[Record, Sequence[str]], None]) -> Record:
    """Run a playbook to its end.

    :param log: the file to which all goes that ``ansible-playbook`` prints.
    :param directory: a private directory.
    :param listener: is called after every event with the record so far and the hosts whose turn is over.
    :raises ApplyError: when Ansible ended before it had done what there was to do.
    :raises UsageError: when no host of the inventory is meant.
    :raises KeyboardInterrupt: when it was interrupted; Ansible has ended then as well.
    """
    argv = call.argv()
    start = log.stat().st_size
    record = Record(checked=call.check)
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as events, log.open("ab") as stream, ExitStack() as stack:
        variables = environment(writing, directory)
        stream.write(
            f"# ANSIBLE_CONFIG={variables['ANSIBLE_CONFIG']}\n$ ansible-playbook {' '.join(argv[5:])}\n".encode()
        )
        stream.flush()
        printed = stack.enter_context(printable_log(stream))
        try:
            process = subprocess.Popen(
                argv, stdout=printed, stderr=subprocess.STDOUT, env=variables, pass_fds=(writing,)
            )
        finally:
            os.close(writing)
        try:
            for line in events:
                listener(record, record.take(json.loads(line)))
            code = process.wait()
        except BaseException:
            # Ansible got the same interrupt from the terminal; it ends its tasks and itself.
            _end(process)
            raise
    if not record.hosts and (record.no_hosts or _names_no_host(log, start)):
        raise UsageError(_NO_HOSTS, remedy="compare --limit with the names in the inventory")
    if not record.ended:
        raise ApplyError(f"ansible-playbook ended with {code} before it was done", remedy=_last_words(log, start))
    return record


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def _names_no_host(log: Path, start: int) -> bool:
    """Whether Ansible has refused a limit that no host fits: it does so before any event (``ansible-playbook``)."""
    with log.open("rb") as stream:
        stream.seek(start)
        return _NO_MATCH in stream.read()


def _last_words(log: Path, start: int) -> str:
    """What Ansible said last: it tells what kept it from working."""
    with log.open("rb") as stream:
        stream.seek(start)
        lines = stream.read().decode(errors="replace").strip().splitlines()
    return "\n    ".join([f"the log {log} ends with:", *lines[-_TAIL:]])

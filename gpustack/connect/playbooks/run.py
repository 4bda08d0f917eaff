"""Run ``ansible-playbook``."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from gpustack.base.errors import ApplyError, GpustackError, UsageError
from gpustack.base.files import collection_dir, write_atomic
from gpustack.base.text import LAYOUT, printable
from gpustack.connect.playbooks.configuration import configuration
from gpustack.connect.playbooks.record import Record

_TAIL = 12
_NO_MATCH = b"Specified inventory, host pattern and/or --limit leaves us with no hosts to target"
_NO_HOSTS = "no host of the inventory is meant"  # Ansible itself rejects a limit that no host matches
_PIECE = 1 << 16
_START = 60.0
"""Seconds until Ansible prints its version."""
_PATIENCE = 10.0
"""Seconds; a process left behind by Ansible may keep the pipe open indefinitely."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a playbook run.

    :param playbook: its name: ``prepare``.
    :param inventory: files or directories of inventories, or other values of Ansible's ``-i``.
    :param limit: a host pattern, or ``@FILE``; None for all hosts.
    :param variables: Ansible variables of highest precedence.
    :param arguments: more arguments of ``ansible-playbook``.
    :param check: whether it is a dry run (``--check``).
    """

    playbook: str
    inventory: Sequence[str]
    limit: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    check: bool = False

    def argv(self) -> list[str]:
        """The command. It uses the environment in which gpustack runs, since the plug-ins import gpustack."""
        return [
            *_program(),
            *(f"--inventory={source}" for source in self.inventory),
            *([f"--limit={self.limit}"] if self.limit else []),
            *(["--check"] if self.check else []),
            "--diff",
            f"--extra-vars={json.dumps(dict(self.variables))}",
            *self.arguments,
            str(collection_dir() / "playbooks" / f"{self.playbook}.yml"),
        ]


def _program() -> list[str]:
    return [sys.executable, "-P", "-m", "ansible", "playbook"]  # -P: no modules of the current directory


def ansible_version() -> str:
    """The version of the Ansible that runs the playbooks, started with its configuration.

    :raises GpustackError: if it does not start.
    """
    command = [*_program(), "--version"]
    remedy = f"run {shlex.join(command)}"
    with tempfile.TemporaryDirectory(prefix="gpustack-") as directory:
        variables = configuration(os.environ, Path.cwd()).environment(os.environ, Path(directory))
        try:
            ran = subprocess.run(
                command, env=variables, capture_output=True, text=True, errors="replace", timeout=_START, check=False
            )
        except subprocess.TimeoutExpired:
            raise GpustackError(f"Ansible did not start within {_START:g} s", remedy=remedy) from None
    if ran.returncode:
        last = re.split(r"\n(?=[\w.]+Error: )", ran.stderr.strip())[-1] or "no message"  # without traceback
        raise GpustackError(f"Ansible does not start: {' '.join(last.split())}", remedy=remedy)
    return ran.stdout.partition("\n")[0].partition("[")[2].rstrip("] ")


def environment(descriptor: int, directory: Path) -> dict[str, str]:
    """The operator's environment, with host key checks and a log without colour.

    :param descriptor: the pipe of the callback plugin.
    :param directory: a private directory.
    """
    return {
        **configuration(os.environ, Path.cwd()).environment(os.environ, directory),
        "GPUSTACK_EVENTS_FD": str(descriptor),
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


def play(call: Call, log: Path, directory: Path, listener: Callable[[Record, Sequence[str]], None]) -> Record:
    """Run a playbook.

    :param log: the file for the output of ``ansible-playbook``; it must exist.
    :param directory: a private directory.
    :param listener: called after every event with the record and the hosts whose turn has ended.
    :raises ApplyError: when Ansible ended prematurely.
    :raises UsageError: when no host of the inventory matches.
    :raises KeyboardInterrupt: when it was interrupted; Ansible has then ended too.
    """
    argv = call.argv()
    start = log.stat().st_size
    record = Record(checked=call.check)
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as events, log.open("ab") as stream, ExitStack() as stack:
        variables = environment(writing, directory)
        stream.write(
            f"# ANSIBLE_CONFIG={variables['ANSIBLE_CONFIG']}\n$ ansible-playbook {shlex.join(argv[5:])}\n".encode()
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
            # Ansible received the same interrupt from the terminal; it ends its tasks and itself.
            _end(process)
            raise
    if not record.hosts and (record.no_hosts or _NO_MATCH in _printed(log, start)):
        raise UsageError(_NO_HOSTS, remedy="compare --limit with the names in the inventory")
    if not record.ended:
        last = _printed(log, start).decode(errors="replace").strip().splitlines()[-_TAIL:]
        remedy = "\n    ".join([f"the log {log} ends with:", *last])
        raise ApplyError(f"ansible-playbook ended with {code} before it was done", remedy=remedy)
    return record


def _printed(log: Path, start: int) -> bytes:
    """Ansible's output; if no host matches the limit, it has that and no event, and otherwise the reason at its end."""
    with log.open("rb") as stream:
        stream.seek(start)
        return stream.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


@contextmanager
def printable_log(log: BinaryIO) -> Iterator[int]:
    """Yield the descriptor of a pipe that is copied into a log, made printable because it contains text from hosts.

    At the end, wait until all writers have closed the pipe.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_copy, args=(reading, log), daemon=True, name="log")
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(_PATIENCE)


def _copy(reading: int, log: BinaryIO) -> None:
    # The log is closed after _PATIENCE seconds.
    with suppress(ValueError), open(reading, encoding="utf-8", errors="replace", newline="") as texts:
        while piece := texts.readline(_PIECE):
            log.write(printable(piece, keep=LAYOUT).encode())
            log.flush()


def as_files(values: Sequence[str], directory: Path) -> list[str]:
    """The operator's ``-e`` values as arguments with files: every user can read a command line, and Ansible logs it.

    The order of the values is kept; ``@FILE`` stays unchanged.

    :param values: each as ``-e`` accepts it: ``@FILE``, YAML or JSON, or ``key=value`` words
        (``ansible/utils/vars.py``, ``load_extra_vars``).
    :param directory: a private directory.
    """
    return [f"--extra-vars={_as_file(value, directory / f'extra-{n}.json')}" for n, value in enumerate(values)]


def _as_file(value: str, path: Path) -> str:
    if not value or value[0] in "@/.":
        return value
    text = value
    if value[0] not in "[{":
        from ansible.parsing.splitter import parse_kv

        text = json.dumps(parse_kv(value))
    write_atomic(path, text, mode=0o600)
    return f"@{path}"

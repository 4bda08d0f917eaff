"""Run a Python program on a host over SSH, and read the JSON that it prints, with limits of time and size."""

import contextlib
import json
import os
import subprocess
import time

import paramiko

from gpustack.base.errors import HostError
from gpustack.connect.ssh.config import SshOptions
from gpustack.connect.ssh.keys import reason

MAX_OUTPUT = 16 << 20
_MOST_VALUES = 1_000_000
"""Maximum number of values in the JSON: an empty list is two bytes long, but takes thirty times as much memory."""
_MAX_COMPLAINT = 64 << 10
_CHUNK = 1 << 16
_NO_PYTHON = "gpustack: no python"
_SUDO = "sudo -n -- "

# -I and -S ignore the user's environment and site-packages, and start faster. `python` may be Python 2.
_FIND_PYTHON = (
    "for p in python3 /usr/libexec/platform-python python; do"
    ' command -v "$p" >/dev/null 2>&1 || continue;'
    ' [ "$p" != python ] || "$p" -c "import sys; sys.exit(sys.version_info < (3, 6))" || continue;'
    ' exec {sudo}"$p" -I -S -;'
    ' done; echo "' + _NO_PYTHON + '" >&2; exit 127'
)


def run_program(transport: paramiko.Transport, name: str, program: bytes, options: SshOptions) -> dict[str, object]:
    """Run a program with the host's Python (3.6 or later), and return the JSON object that it prints.

    :raises HostError: if the connection breaks, the program fails or exceeds ``options.timeout`` or ``MAX_OUTPUT``, or
        the output is not a JSON object.
    """
    command = f"exec /bin/sh -c '{_FIND_PYTHON.format(sudo=_SUDO if options.sudo else '')}'"
    try:
        channel = transport.open_session(timeout=options.timeout)
        channel.exec_command(command)
        output, complaint, status = _talk(channel, name, program, options.timeout)
    except HostError:
        raise
    except Exception as error:  # paramiko raises arbitrary exceptions on malformed messages of a host
        what = f"the connection broke while it was read: {reason(error)}"
        raise HostError(what, where=name, remedy="scan it again") from error
    if status != 0:
        raise _failed(name, status, complaint, options)
    return _document(output, name)


def run_here(name: str, program: bytes, options: SshOptions) -> dict[str, object]:
    """Run a program with this machine's Python, with ``sudo`` as root, and return the JSON object that it prints.

    :raises HostError: if sudo refuses, the program fails or exceeds ``options.timeout``, or prints no JSON object.
    """
    command = ["/bin/sh", "-c", _FIND_PYTHON.format(sudo=_SUDO if options.sudo and os.geteuid() else "")]
    try:
        ran = subprocess.run(command, input=program, capture_output=True, check=False, timeout=options.timeout)
    except subprocess.TimeoutExpired as error:
        raise _too_slow(name, options.timeout) from error
    if ran.returncode != 0:
        complaint = ran.stderr[:_MAX_COMPLAINT].decode("utf-8", "replace").strip()
        raise _failed(name, ran.returncode, complaint, options, other="run gpustack as root")
    return _document(ran.stdout, name)


def _talk(channel: paramiko.Channel, name: str, program: bytes, timeout: float) -> tuple[bytes, str, int]:
    """Send the program, and read stdout and stderr until both end; return them with the exit status."""
    deadline = time.monotonic() + timeout
    with contextlib.suppress(OSError):  # a host that does not read the program reports the reason on stderr
        _send(channel, program, deadline)
        channel.shutdown_write()
    output, complaint = bytearray(), bytearray()
    channel.settimeout(0.2)
    while True:
        while channel.recv_stderr_ready() and time.monotonic() < deadline:  # stderr may be endless
            complaint += channel.recv_stderr(_CHUNK)
            del complaint[_MAX_COMPLAINT:]
        try:
            piece = channel.recv(_CHUNK)
        except TimeoutError:
            piece = None
        if piece == b"":
            break
        output += piece or b""
        if len(output) > MAX_OUTPUT:
            raise HostError(f"prints more than {MAX_OUTPUT >> 20} MiB, which is no description of a host", where=name)
        if time.monotonic() > deadline:
            raise _too_slow(name, timeout)
    channel.settimeout(max(0.1, deadline - time.monotonic()))
    with contextlib.suppress(TimeoutError):
        while time.monotonic() < deadline and (chunk := channel.recv_stderr(_CHUNK)):
            complaint += chunk[: _MAX_COMPLAINT - len(complaint)]
    if not channel.status_event.wait(max(0.1, deadline - time.monotonic())):
        raise HostError("did not report how the program ended", where=name, remedy="scan it again")
    return bytes(output), complaint.decode("utf-8", "replace").strip(), channel.recv_exit_status()


def _send(channel: paramiko.Channel, program: bytes, deadline: float) -> None:
    """Send the program until the deadline: a host may read it arbitrarily slowly."""
    while program and (remaining := deadline - time.monotonic()) > 0:
        channel.settimeout(remaining)
        program = program[channel.send(program) :]


def _too_slow(name: str, timeout: float) -> HostError:
    remedy = "raise --timeout, or look what keeps the host busy"
    return HostError(f"did not answer within {timeout:g} seconds", where=name, remedy=remedy)


def _failed(
    name: str, status: int, complaint: str, options: SshOptions, *, other: str = "scan as --user root"
) -> HostError:
    """The error of a program that failed.

    :param other: a way to be root without sudo, for the remedy.
    """
    if _NO_PYTHON in complaint:
        remedy = "install python3 there, as Ansible needs it too (apt-get install python3)"
        return HostError("has no Python 3.6 or later", where=name, remedy=remedy)
    if options.sudo and "sudo: not found" in complaint:
        return HostError("has no sudo", where=name, remedy=f"{other}, without --sudo")
    if options.sudo and "sudo:" in complaint:
        return HostError(
            f"sudo refuses: {_last_line(complaint)}",
            where=name,
            remedy="allow this user to run python3 with sudo without a password (NOPASSWD; this makes the user equal to"
            f" root, see docs/howto/scan-hosts.md), or {other}",
        )
    why = _last_line(complaint) or "it printed nothing"
    remedy = "look at that host's Python: ssh HOST python3 -I -S -c 'import json, socket'"
    return HostError(f"the program ended with status {status}: {why}", where=name, remedy=remedy)


def _document(output: bytes, name: str) -> dict[str, object]:
    if sum(map(output.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise HostError(f"prints more than {_MOST_VALUES} values, which is no description of a host", where=name)
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return document
    start = output[:60].decode("utf-8", "replace").strip()
    raise HostError(
        f"what it printed is no description of a host: {start!r}" if start else "it printed nothing",
        where=name,
        remedy="its shell's start-up files (such as .bashrc) must print nothing without a terminal",
    )


def _last_line(text: str) -> str:
    return text.splitlines()[-1][:300] if text else ""

"""Pythons whose programs start as forks of a process that has imported their packages: half of a play is starting.

``python`` is the one of ``.venv``, for the programs in its ``bin`` and the stand-ins of example hosts. ``outside`` is
the one below it, for Ansible's modules. Both are shell scripts, and start like any other interpreter. Ansible itself
and the modules that it sends to a host are imported in the fork. A test about the start of a program (signals, another
``PYTHONPATH``) uses ``sys.executable`` or ``interpreter()``.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import hashlib
import importlib
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

_OUTSIDE = (
    *("__future__", "argparse", "base64", "collections.abc", "configparser", "ctypes.util", "dataclasses", "datetime"),
    *("email.message", "errno", "glob", "grp", "inspect", "ipaddress", "json", "locale", "logging.handlers", "lzma"),
    *("platform", "pwd", "queue", "shlex", "stat", "syslog", "tarfile", "textwrap", "traceback", "typing", "uuid"),
    *("zipfile", "zipimport"),
)
_VENV = (
    *(f"gpustack.{job}.plugin_api" for job in ("configure", "prepare", "repair")),
    "gpustack.base.task_results",
    "gpustack_demo.examples.standin",
    "gpustack.base.findings:definitions",
    "gpustack.pci.catalogue:cards",
    *("cryptography.hazmat.backends.openssl.backend", "jinja2", "paramiko", "yaml"),
    *("asyncio", "ctypes.util", "email.message", "logging.handlers", "multiprocessing.queues", "packaging.version"),
)
_CLIENT = """\
#!/bin/bash
exec 7<&0 8>&1 9>&2 3<>/dev/tcp/127.0.0.1/{port}
echo $$ >&3
read -r -u 3 code
exit "${{code:-70}}"
"""
_HOST_SITE = Path(__file__).with_name("host_site")


def run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Python program, given with its path, and its arguments; like ``subprocess.run`` with captured text."""
    is_warm = "PYTHONPATH" not in env and Path(command[0]).parent == Path(sys.executable).parent
    started = [python(), *command] if is_warm else list(command)
    return subprocess.run(started, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def python() -> str:
    """The Python of ``.venv``."""
    return _client(sys.executable, *_VENV)


def outside() -> str:
    """The Python below ``.venv``, as ``gpustack.connect.playbooks.inventory.interpreter``."""
    return _client(str(Path(sys.executable).resolve()), *_OUTSIDE)


@cache
def _directory() -> str:
    directory = tempfile.mkdtemp(prefix="gpustack-compiled-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@cache
def _client(executable: str, *modules: str) -> str:
    """Start the process; the script that asks it for a fork."""
    process = subprocess.Popen(
        [executable, __file__, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # a pipe as its clients have; Python remembers that it can't seek in it
        text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(_HOST_SITE), "GPUSTACK_COMPILED": _directory()},
    )
    atexit.register(process.kill)
    assert process.stdout is not None
    script = Path(_directory(), f"python-{Path(executable).name}-{process.pid}")
    script.write_text(_CLIENT.format(port=int(process.stdout.readline())), encoding="utf-8")
    script.chmod(0o700)
    return str(script)


def _serve(entries: Sequence[str]) -> None:
    """Fork for each client, until the standard input ends.

    :param entries: modules to import; with ``:NAME``, a function that reads tables.
    """
    for entry in entries:
        module, _, function = entry.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    sys.path.remove(str(_HOST_SITE))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        signal.signal(signal.SIGCHLD, _reap)
        while 0 not in select.select([listening.fileno(), 0], [], [])[0]:
            connection = listening.accept()[0]
            sys.modules["sitecustomize"].remember()
            gc.freeze()
            if not os.fork():
                listening.close()
                _answer(connection)
            connection.close()


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(connection: socket.socket) -> None:
    """Become the program, and answer with its code; end if the client ends before."""
    code = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        client = Path("/proc", connection.makefile().readline().strip())
        fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
        for number, flag in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_APPEND), (2, os.O_WRONLY | os.O_APPEND)):
            opened = os.open(client / f"fd/{7 + number}", flag)
            os.dup2(opened, number)
            os.close(opened)
        os.chdir(client / "cwd")
        os.umask(int((client / "status").read_text().partition("\nUmask:")[2].split()[0], 8))
        os.environ.clear()
        for entry in (client / "environ").read_bytes().split(b"\0")[:-1]:
            name, _, value = entry.partition(b"=")
            os.environb[name] = value
        arguments = (client / "cmdline").read_bytes().split(b"\0")[2:-1]
        code = _run([os.fsdecode(argument) for argument in arguments])
    finally:
        with contextlib.suppress(OSError):
            connection.sendall(f"{code}\n".encode())
        os._exit(code)


def _run(arguments: list[str]) -> int:
    """Run the program of these arguments of an interpreter; its code."""
    gc.disable()
    code: object = 0
    try:
        _program(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


def _program(arguments: list[str]) -> None:
    sys.path[0] = str(Path.cwd())
    sys.argv = arguments or [""]
    if not arguments:
        _source(sys.stdin.buffer.read(), "<stdin>")
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        _source(arguments[1], "<string>")
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0].startswith("-"):
        sys.exit(subprocess.call([sys.executable, *arguments]))
    else:
        sys.path[0] = str(Path(arguments[0]).parent)
        if Path(arguments[0]).name.startswith("ansible"):
            _prepare_ansible()
        runpy.run_path(arguments[0], run_name="__main__")


def _source(text: str | bytes, name: str) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _prepare_ansible() -> None:
    """Keep what Ansible makes of the same module in each play, and wait less often for results."""
    compiled = os.environ["GPUSTACK_COMPILED"] = _COMPILED
    os.environ["PYTHONPATH"] = str(_HOST_SITE)
    from ansible import constants

    constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.01  # seconds; Ansible looks for results a thousand times a second
    places = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").encode()
    modules = Path(compiled, f"modules-{hashlib.sha256(places).hexdigest()}")
    modules.mkdir(exist_ok=True)
    Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").symlink_to(modules)


if __name__ == "__main__":
    _COMPILED = os.environ["GPUSTACK_COMPILED"]
    _serve(sys.argv[1:])

"""Programs of ``.venv`` in forks of one process that has imported their packages: starting takes half of a short play.

``run`` starts it on first use, one for each worker of pytest. Ansible itself is imported in the fork, since it reads
its configuration then. A test about the program itself (signals, another ``PYTHONPATH``) starts it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_IMPORTED = (
    *(f"gpustack.{job}.plugin_api" for job in ("configure", "prepare", "repair")),
    "gpustack.base.task_results",
    "cryptography.hazmat.backends.openssl.backend",
    "jinja2",
    "yaml",
    *("asyncio", "ctypes.util", "email.message", "logging.handlers", "multiprocessing.queues", "packaging.version"),
)


def run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Python program, given with its path, and its arguments; like ``subprocess.run`` with captured text."""
    if "PYTHONPATH" in env or Path(command[0]).parent != Path(sys.executable).parent:
        return subprocess.run(list(command), cwd=cwd, env=env, capture_output=True, text=True, check=False)
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as directory:
        request = {"argv": [*command], "cwd": str(cwd), "env": dict(env), "output": directory}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        output, errors = ((Path(directory) / name).read_text(encoding="utf-8") for name in ("output", "errors"))
    return subprocess.CompletedProcess(list(command), code, output, errors)


@cache
def _server() -> subprocess.Popen[str]:
    compiled = tempfile.mkdtemp(prefix="gpustack-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    process = subprocess.Popen(
        [sys.executable, __file__, compiled], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    return process


def _serve() -> None:
    for module in _IMPORTED:
        __import__(module)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(_run(**request))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(argv: list[str], cwd: str, env: dict[str, str], output: str) -> int:
    """Become the program; its code."""
    for number, path, mode in ((0, os.devnull, "r"), (1, f"{output}/output", "w"), (2, f"{output}/errors", "w")):
        with Path(path).open(mode, encoding="utf-8") as opened:
            os.dup2(opened.fileno(), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    os.environ.update(PYTHONPATH=str(Path(__file__).with_name("host_site")), GPUSTACK_COMPILED=sys.argv[1])
    gc.disable()
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).parent)
    if Path(argv[0]).name == "ansible-playbook":
        from ansible import constants

        constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.01  # seconds; Ansible looks for results a thousand times a second
    code: object = 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 1 if code else 0


if __name__ == "__main__":
    _serve()

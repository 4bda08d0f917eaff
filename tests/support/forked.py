"""Many short runs of pytest in one copy: each is a fork of a process that has imported what the earlier runs needed.

Only modules from outside the copy are kept, so each run imports the copy's files as they are then.
``python -m support.forked COPY`` reads one JSON object per line, ``{"arguments": […], "seconds": …}``, and answers
with the exit code of pytest, or null if the run took longer and was killed with its processes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support import checkout


class Runs:
    """The process, as its caller sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def pytest(self, arguments: Sequence[str], *, timeout: float) -> int | None:
        """Run tests of the copy, up to the first failure: the exit code, or None if they take longer.

        :param timeout: seconds.
        :raises EOFError: if the process has ended.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"arguments": arguments, "seconds": timeout}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise EOFError("the process that runs the tests has ended")
        code: int | None = json.loads(answer)
        return code


@contextlib.contextmanager
def started(place: Path) -> Iterator[Runs]:
    """The process for a copy of the working tree; it ends with the block."""
    command, pipe = [sys.executable, "-m", "support.forked", str(place)], subprocess.PIPE
    inside = checkout.environment(place)
    with subprocess.Popen(command, cwd=place, env=inside, stdin=pipe, stdout=pipe, text=True) as one:
        try:
            yield Runs(one)
        finally:
            one.kill()


def _forked(arguments: Sequence[str], seconds: float, place: str) -> tuple[int | None, list[str]]:
    """The exit code of one run, and the modules that it imported from outside the copy.

    Assertions are not rewritten: nobody reads what they print, and it would cost a third of a short run.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        code = 70
        try:
            options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider"]
            code = int(pytest.main([*options, *arguments], plugins=[_Order(arguments)]))
            with os.fdopen(writing, "w") as names:
                json.dump([name for name, one in list(sys.modules.items()) if _outside(one, place)], names)
        finally:
            os._exit(code)
    os.close(writing)
    finished = os.pidfd_open(process)
    try:
        ready = select.select([finished, reading], [], [], seconds)[0]
        with os.fdopen(reading) as names:
            text = names.read() if ready else ""
        if ready and select.select([finished], [], [], seconds)[0]:
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), json.loads(text or "[]")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return None, []
    finally:
        os.close(finished)


class _Order:
    """A plug-in that keeps the order of the tests that are named one by one."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(arguments)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._places.get(item.nodeid, 0))


def _outside(module: Any, place: str) -> bool:
    """Whether a module is installed, and no plug-in that pytest itself wants to import."""
    file, name = getattr(module, "__file__", None) or "", getattr(module, "__name__", "")
    return file.startswith((sys.prefix, sys.base_prefix)) and not file.startswith(place) and "pytest" not in name


def main() -> None:
    place = sys.argv[1]
    for line in sys.stdin:
        work = json.loads(line)
        code, names = _forked(work["arguments"], work["seconds"], place)
        print(json.dumps(code), flush=True)
        for name in names:
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


if __name__ == "__main__":
    main()

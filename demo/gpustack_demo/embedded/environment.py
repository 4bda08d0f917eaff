"""The virtual environment of a release, in which an embedded cloud runs.

It is created once, outside of any checkout, under a name derived from its content
(:meth:`EmbeddedRelease.environment`). A marker is written last; an environment without it is incomplete and is
recreated. A lock serialises concurrent processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.process import ServiceError, tail
from gpustack_demo.embedded.releases import EmbeddedRelease, release, require_interpreter

_MARKER = "gpustack-complete"

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A complete virtual environment of one release."""

    release: EmbeddedRelease
    path: Path

    def program(self, name: str) -> Path:
        """A program of the environment (``python``, ``openstack``, ``nova-manage``)."""
        return self.path / "bin" / name

    def variables(self) -> dict[str, str]:
        """Environment variables for its programs: this process's, without those that change Python's import path."""
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OS_", "VIRTUAL_ENV"))
        }
        return {
            **inherited,
            "PATH": f"{self.path / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
        }


def ensure(name: str, *, report: Report = lambda text: None) -> Environment:
    """The environment of release ``name``, created if needed.

    :param report: called with one line for each step.
    :raises UsageError: when there is no such release.
    :raises GpustackError: when there is no suitable Python, or pip failed.
    """
    entry = release(name)
    python = require_interpreter(entry)
    path = entry.environment(_minor(entry, python))
    with locked(path.parent / f"{path.name}.lock"):
        if not (path / _MARKER).exists():
            _make(entry, python, path, report)
    return Environment(release=entry, path=path)


def _minor(entry: EmbeddedRelease, python: Path) -> str:
    if python == Path(sys.executable):
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    return next(version for version in entry.python if python.name.endswith(version))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold ``path`` as a lock between processes; the file is created, and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _make(entry: EmbeddedRelease, python: Path, path: Path, report: Report) -> None:
    began = time.monotonic()
    report(f"OpenStack {entry.name}: installing its packages with {python} into {path}")
    if path.exists():
        shutil.rmtree(path)
    log = path.parent / f"{path.name}.log"
    log.unlink(missing_ok=True)
    # -I: no modules of the current directory.
    pip = [str(path / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    quiet = ["--quiet", "--progress-bar", "off"]
    _run([str(python), "-I", "-m", "venv", str(path)], log)
    # The pins are complete and have hashes: no other package or content is installed.
    _run([*pip, "install", *quiet, "--require-hashes", "--no-deps", "-r", str(entry.pins)], log)
    write_atomic(path / _MARKER, f"{entry.name}\n", mode=0o644)
    report(f"OpenStack {entry.name}: installed in {time.monotonic() - began:.0f} s")


def _run(command: Sequence[str], log: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with log.open("ab") as output:
        process = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False)
    if process.returncode:
        raise ServiceError(
            f"{' '.join(command[:4])} … failed with exit code {process.returncode}:\n{tail(log)}",
            where=str(log),
            remedy="check that this machine reaches a Python package index, then run the same command again",
        )

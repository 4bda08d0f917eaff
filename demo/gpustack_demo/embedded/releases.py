"""The releases that can run here: their versions, their pins and suitable interpreters."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from gpustack.base.errors import GpustackError, UsageError

_HERE = Path(__file__).resolve().parent
_LAYOUT = 1
"""Increment this if environments with the same pins must be recreated."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedRelease:
    """One OpenStack release.

    :param name: ``2025.2``, or a codename such as ``yoga``.
    :param versions: versions of the distributions that differ by release (``nova``, ``openstack-placement``,
        ``keystone``).
    :param python: the tested ``major.minor`` versions of Python, best first.
    """

    name: str
    versions: tuple[tuple[str, str], ...]
    python: tuple[str, ...]

    @property
    def pins(self) -> Path:
        """The file of exact versions and their hashes."""
        return _HERE / "constraints" / f"{self.name}.txt"

    def interpreter(self) -> Path | None:
        """A suitable Python: this one, one on the path, or one of pyenv; None when there is none."""
        for version in self.python:
            if version == f"{sys.version_info.major}.{sys.version_info.minor}":
                return Path(sys.executable)
            for candidate in _candidates(version):
                if _is_version(candidate, version):
                    return candidate
        return None

    def environment(self, python: str) -> Path:
        """The path of this release's virtual environment under Python ``major.minor`` (it may not exist)."""
        content = f"{_LAYOUT} {python}\n".encode() + self.pins.read_bytes()
        return cache_dir() / f"nova-{self.name}-{hashlib.sha256(content).hexdigest()[:12]}"


def _candidates(version: str) -> list[Path]:
    on_path = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    interpreters = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    return interpreters[::-1] + ([Path(on_path)] if on_path else [])


@functools.cache
def _is_version(python: Path, version: str) -> bool:
    ask = [str(python), "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def cache_dir() -> Path:
    """The directory of environments and database templates: ``$GPUSTACK_CACHE``, else ``~/.cache/gpustack``."""
    chosen = os.environ.get("GPUSTACK_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "gpustack"


class _Release(TypedDict):
    nova: str
    placement: str
    keystone: str
    python: list[str]


class _Table(TypedDict):
    packages: list[str]
    releases: dict[str, _Release]


@functools.cache
def _table() -> _Table:
    return cast("_Table", tomllib.loads((_HERE / "releases.toml").read_text(encoding="utf-8")))


def packages() -> tuple[str, ...]:
    """The distributions that embedded clouds use by name; the pins include their dependencies."""
    return tuple(_table()["packages"])


def releases() -> dict[str, EmbeddedRelease]:
    """Every release that can run, newest first."""
    return {
        name: EmbeddedRelease(
            name=name,
            versions=(
                ("nova", entry["nova"]),
                ("openstack-placement", entry["placement"]),
                ("keystone", entry["keystone"]),
            ),
            python=tuple(entry["python"]),
        )
        for name, entry in _table()["releases"].items()
    }


def release(name: str) -> EmbeddedRelease:
    """The release called ``name``.

    :raises UsageError: when there is no release of that name.
    """
    entry = releases().get(name.lower())
    if entry is None:
        known = ", ".join(releases())
        raise UsageError(f"OpenStack {name} can't be run here", remedy=f"name one of: {known}")
    return entry


def available() -> list[EmbeddedRelease]:
    """The releases with an installed interpreter."""
    return [entry for entry in releases().values() if entry.interpreter() is not None]


def require_interpreter(entry: EmbeddedRelease) -> Path:
    """The interpreter for ``entry``.

    :raises GpustackError: when none is installed.
    """
    interpreter = entry.interpreter()
    if interpreter is None:
        wanted = " or ".join(entry.python)
        raise GpustackError(
            f"OpenStack {entry.name} needs Python {wanted} with venv, which is not installed",
            remedy=f"install python{entry.python[0]} and its venv module, or put it under ~/.pyenv/versions",
        )
    return interpreter

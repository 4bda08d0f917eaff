"""A copy of the working tree, in which a test can add or change files and run other tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).parents[2]


def copied(place: Path) -> Path:
    """Copy the files of the working tree that git does not ignore, links as links."""
    listing = ("git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = TOP / name, place / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return place


def environment(place: Path, **more: str) -> dict[str, str]:
    """An environment in which Python imports the copy, without bytecode: a change keeps a file's size and second."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    paths = os.pathsep.join(str(place / part) for part in ("", "demo", "tests"))
    return {**kept, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **more}


def pytest(place: Path, arguments: Sequence[str], *, timeout: float, **more: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy, up to the first failure.

    :param timeout: seconds.
    :raises subprocess.TimeoutExpired: if they take longer.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=place, env=environment(place, **more), capture_output=True, text=True, timeout=timeout, check=False
    )

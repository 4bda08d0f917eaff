"""Prometheus and promtool: installed, or unpacked by ``tools/setup --unpack prometheus``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpustack_demo.embedded.releases import cache_dir


def find(name: str) -> str | None:
    """The path of ``prometheus`` or ``promtool``."""
    unpacked = cache_dir() / "unpacked" / "prometheus" / "usr" / "bin"
    return shutil.which(name, path=f"{unpacked}:{os.environ['PATH']}")


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``; the test is skipped if there is none; another one fails."""
    path = find(name)
    if path is None:
        pytest.skip(f"{name} is missing: tools/setup --unpack prometheus")
    return path


def promtool(*arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool with ``text`` as its input. Its output is in ``stdout``."""
    return subprocess.run(
        [program("promtool"), *arguments],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )


def check_metrics(text: str) -> None:
    """Assert that promtool finds no fault in metrics."""
    checked = promtool("check", "metrics", text=text)
    assert (checked.returncode, checked.stdout) == (0, "")

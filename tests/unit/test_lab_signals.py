"""The kernel lab, ended from outside: hosts and services end too."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
LAB = """
import os
import time

import pytest


@pytest.fixture
def host():
    yield
    print("the host ended")


def test_host(host):
    os.kill(os.getpid(), {signal})
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_hosts_end_with_an_interrupted_lab(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_lab.py").write_text(LAB.format(signal=number.value), encoding="utf-8")
    lab = [sys.executable, "-m", "pytest", "-s", "-p", "tests.lab.conftest", "-p", "no:cacheprovider"]
    process = subprocess.run(
        # A shell starts background commands with SIGINT ignored.
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *lab, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == pytest.ExitCode.INTERRUPTED, process.stdout
    assert "the host ended" in process.stdout

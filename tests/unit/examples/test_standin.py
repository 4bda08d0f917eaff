"""The stand-in's command line: it says what it is, and does not pretend to know what it does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_host(tmp_path_factory.mktemp("examples") / "gpu01", hosts.talk_host())


def standin(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpustack_demo.examples.standin", "--root", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["update-grub"], "Found 2 Linux image(s)"),
        (["/usr/sbin/update-initramfs", "-u", "-k", "all"], "Generating /boot/initrd.img-6.1.0-37-amd64"),
        (["reboot"], "Linux 6.1.0-40-amd64 is up"),
    ],
)
def test_it_says_that_it_stands_in(root: Path, words: list[str], said: str) -> None:
    done = standin(root, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("stand-in for ")
    assert said in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["rm", "-rf", "/"],
        ["reboot", "--force"],
        ["update-grub", "-x"],
        ["update-initramfs", "-d"],
        ["update-initramfs", "-u", "-k", "9.9"],
    ],
)
def test_it_refuses_what_it_does_not_know(root: Path, words: list[str]) -> None:
    done = standin(root, *words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"stand-in for {words[0]}: ")


def test_it_refuses_a_directory_that_is_no_example(tmp_path: Path) -> None:
    done = standin(tmp_path, "reboot")
    assert done.returncode == 1
    assert "machine.json" in done.stderr

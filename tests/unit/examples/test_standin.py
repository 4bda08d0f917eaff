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


def standin(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpustack_demo.examples.standin", "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["update-grub"], "Found 2 Linux image(s)"),
        (["/usr/sbin/update-initramfs", "-u", "-k", "all"], "Generating /boot/initrd.img-6.1.0-37-amd64"),
        (["reboot"], "Linux 6.1.0-40-amd64 is up"),
    ],
)
def test_it_says_that_it_stands_in(root: Path, arguments: list[str], text: str) -> None:
    process = standin(root, *arguments)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("stand-in for ")
    assert text in process.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["rm", "-rf", "/"],
        ["reboot", "--force"],
        ["update-grub", "-x"],
        ["update-initramfs", "-d"],
        ["update-initramfs", "-u", "-k", "9.9"],
    ],
)
def test_it_refuses_what_it_does_not_know(root: Path, arguments: list[str]) -> None:
    process = standin(root, *arguments)
    assert process.returncode == 1
    assert process.stderr.startswith(f"stand-in for {arguments[0]}: ")


def test_it_refuses_a_directory_that_is_no_example(tmp_path: Path) -> None:
    process = standin(tmp_path, "reboot")
    assert process.returncode == 1
    assert "machine.json" in process.stderr

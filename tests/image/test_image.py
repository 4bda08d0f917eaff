"""``playbooks/image.yml`` in real root file systems of Debian 13, with real packages and DKMS builds.

It needs root rights and a gigabyte of packages, so CI does not run it: ``make image-proof`` does. No GPU is needed: the
proof is a module that is built for the kernel of the root.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.files import share_dir

PLAYBOOKS = share_dir("playbooks")


def play(root: Path, packages: list[str], modules: list[str], code: int) -> str:
    variables = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "gpustack_image_root": str(root),
        "gpustack_image_suite": "trixie",
        "gpustack_image_packages": packages,
        "gpustack_image_modules": modules,
    }
    command: list[str | Path] = [
        Path(sys.executable).with_name("ansible-playbook"),
        "-i",
        "localhost,",
        "-c",
        "local",
        PLAYBOOKS / "image.yml",
        "-e",
        json.dumps(variables),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == code, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "an image"
    yield place
    subprocess.run(["sudo", "rm", "-rf", "--one-file-system", place], check=True)


def test_a_driver_that_builds_is_proved(root: Path) -> None:
    output = play(root, ["v4l2loopback-dkms"], ["v4l2loopback"], 0)
    (module,) = root.glob("lib/modules/*/updates/dkms/v4l2loopback.ko*")
    assert f"filename: /{module.relative_to(root)}" in output
    assert " MiB before, " in output
    assert not (root / "usr/sbin/policy-rc.d").exists()
    assert not list((root / "run").iterdir())
    assert str(root) not in Path("/proc/mounts").read_text(encoding="utf-8").replace("\\040", " ")
    assert "changed=0" in play(root, ["v4l2loopback-dkms"], ["v4l2loopback"], 0)


def test_nvidias_driver_of_debian_13_fails_on_its_kernel(root: Path) -> None:
    """550.163.01-2 does not build on 6.12.107 of trixie; if a later package does, this test says so."""
    output = play(root, ["nvidia-open-kernel-dkms"], ["nvidia"], 2)
    (kernel,) = (root / "lib/modules").iterdir()
    assert f"Modules missing: {kernel.name}: nvidia" in output
    assert "too few arguments to function" in output
    assert not list(kernel.glob("updates/dkms/nvidia.ko*"))

"""``playbooks/image.yml`` in real root file systems of Debian 13, with real packages and DKMS builds.

It needs root rights and a gigabyte of packages, so CI does not run it: ``make image-proof`` does. No GPU is needed: the
proof is a module that is built for the kernel of the root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.base.files import collection_dir

PLAYBOOKS = collection_dir() / "playbooks"
SPEC = """\
version: 1
hosts: {gpu01: [h100]}
models: {h100: {match: {vendor: "10de", product: "2331"}}}
flavors: {g.h100: {vcpus: 8, ram: 16GiB, disk: 40GiB, gpus: {h100: 1}}}
"""


def play(root: Path, code: int, **chosen: object) -> str:
    variables = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "gpustack_image_root": str(root),
        "gpustack_image_suite": "trixie",
        **chosen,
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
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*as_root, "rm", "-rf", "--one-file-system", place], check=True)


def test_the_driver_of_a_flavor_builds(root: Path, tmp_path: Path) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    output = play(root, 0, gpustack_image_spec=str(spec))
    (module,) = root.glob("lib/modules/*/updates/dkms/nvidia-current.ko*")
    assert f"filename: /{module.relative_to(root)}" in output
    assert " MiB before, " in output
    assert not (root / "usr/sbin/policy-rc.d").exists()
    assert not list((root / "run").glob("gpustack*"))
    assert str(root) not in Path("/proc/mounts").read_text(encoding="utf-8").replace("\\040", " ")
    assert "changed=0" in play(root, 0, gpustack_image_spec=str(spec))


def test_open_modules_of_debian_13_fail_on_its_kernel(root: Path) -> None:
    """550.163.01-2 does not build on 6.12.117 of trixie; when a later package does, this test fails."""
    output = play(root, 2, gpustack_image_packages=["nvidia-open-kernel-dkms"])
    (kernel,) = (root / "lib/modules").iterdir()
    assert f"Missing in kernel {kernel.name}: nvidia" in output
    assert "too few arguments to function" in output
    assert not list(kernel.glob("updates/dkms/nvidia*.ko*"))

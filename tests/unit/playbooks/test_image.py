"""``image.yml`` before it changes anything. ``make image-proof`` runs it in real root file systems."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.base.files import collection_dir


@pytest.mark.parametrize("place", ["/", "an image without a kernel", "absent"])
def test_only_a_root_with_a_kernel_is_taken(place: str, tmp_path: Path) -> None:
    root = tmp_path / place
    if place.startswith("an image"):
        (root / "boot").mkdir(parents=True)
    variables = {
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "gpustack_image_packages": ["nvidia-driver"],
        "gpustack_image_root": str(root),
    }
    playbook = collection_dir() / "playbooks" / "image.yml"
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "-c", "local", playbook]
    process = subprocess.run([*command, "-e", json.dumps(variables)], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert f"{root} has no kernel (boot/vmlinuz-*), or is not" in " ".join(process.stdout.split())
    assert "changed=0" in process.stdout

"""A booted guest with real cloud-init: vendor data reports its GPU on the serial console, from which gpustack reads it.

The GPU is QEMU's `ati-vga`, which has the ids of a Radeon 7000. The guest's kernel is that of Debian's cloud images.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack.base.errors import CHANGES
from gpustack.offer.guest.inside.report import START

from .cloud_guest import GuestImage, ensure_guest_image, first_boot

FLAVOR, PLAIN = "g1.radeon", "m1.small"
SPEC = f"""\
version: 1
models:
  radeon:
    match: {{vendor: "1002", product: "5159"}}
    driver: vfio-pci
hosts:
  compute1: [radeon]
flavors:
  {FLAVOR}: {{model: radeon, vcpus: 1, ram: 1GiB, disk: 0}}
"""
USER_RAN = "the user's command ran"
USER_DATA = {"runcmd": [["sh", "-c", f'echo "{USER_RAN}" >/dev/console']], "power_state": {"mode": "poweroff"}}
DISPLAY, GPU = "secondary-vga", "ati-vga,model=rv100,romfile="


@pytest.fixture(scope="module")
def image(report: Callable[[str], None]) -> GuestImage:
    return ensure_guest_image(report)


def gpustack(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of gpustack in a directory with the spec."""
    (directory / "gpustack.yaml").write_text(SPEC)
    program = str(Path(sys.executable).with_name("gpustack"))
    return subprocess.run([program, *arguments], cwd=directory, capture_output=True, text=True, check=False)


def boot(image: GuestImage, directory: Path, flavor: str, devices: list[str]) -> str:
    """The console of a guest's first boot with the vendor data of the spec."""
    ran = gpustack(directory, "guest", "vendordata", "gpustack.yaml")
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    console = first_boot(
        image, directory / flavor, vendor_data=data, user_data=USER_DATA, flavor=flavor, devices=devices
    )
    assert USER_RAN in console
    return console


def test_the_report_of_a_guest_with_a_gpu(image: GuestImage, tmp_path: Path, report: Callable[[str], None]) -> None:
    report("a guest with a GPU beside its display")
    console = boot(image, tmp_path, FLAVOR, [DISPLAY, GPU])
    assert console.count(START) == 1
    assert f"{START}1 GPU, no driver bound; GPU855" in console

    log = ["guest", "check", "--exit-code", "--console", f"{FLAVOR}/console.log"]
    ran = gpustack(tmp_path, *log, "gpustack.yaml", "--flavor", FLAVOR)
    assert ran.returncode == CHANGES
    assert len(re.findall(r"\[1002:5159\] +\| none ", ran.stdout)) == 1
    # The kernel of Debian's cloud images has no drivers for displays.
    assert re.findall(r"GPU\d{3}", ran.stderr) == ["GPU855"]
    assert "GPU845" in gpustack(tmp_path, *log, "--gpus", "2").stderr


def test_a_guest_without_a_gpu_is_silent(image: GuestImage, tmp_path: Path, report: Callable[[str], None]) -> None:
    report("a guest with a display alone")
    assert START not in boot(image, tmp_path, PLAIN, [DISPLAY])

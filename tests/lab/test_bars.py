"""How many GPUs with large BARs the firmware of an instance places: every row of ``address-space.yaml``.

The GPUs are QEMU's `pci-testdev`, whose BAR has any size and needs no memory, each behind a root port of its own. TCG:
KVM instances of some hosts have no other address width than the host's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.hosts.facts.collector.resources import bars
from gpustack_demo.examples.images import write_image

from .conftest import Lab
from .image import Image
from .machine import FIRMWARE_CODE, FIRMWARE_VARIABLES

TABLE = Path(__file__).parents[1] / "unit" / "offer" / "flavor" / "address-space.yaml"
ROWS = yaml.safe_load(TABLE.read_text())
TIMEOUT = 600
BEGIN, END = "BARS-BEGIN", "BARS-END"
# Packed behind the guest's initramfs: the kernel unpacks both, and this init replaces the other.
INIT = f"""\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox dmesg -n 1
echo {BEGIN}
for device in /sys/bus/pci/devices/*; do
    read -r id <$device/device
    [ "$id" = 0x0005 ] && echo "${{device##*/}} $(/bin/busybox sed -n 3p $device/resource)"
done
echo {END}
/bin/busybox poweroff -f
"""
ARGUMENTS = "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check audit=0 lsm= cryptomgr.notests mem=1G"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['firmware']}-{row['bits']}-{ROWS.index(row)}")
def test_gpus_with_bars(lab: Lab, row: dict[str, Any]) -> None:
    directory = lab.directory / f"bars-{ROWS.index(row)}"
    directory.mkdir()
    output = run(lab.image, directory, row)
    (directory / "serial.log").write_text(output)
    listing = output.partition(BEGIN)[2].partition(END)[0]
    placed: dict[str, list[bool]] = {}
    for slot, line in re.findall(r"^(\S+)\.\d (.*?)\s*$", listing, flags=re.MULTILINE):
        # A BAR without an address is cleared, or keeps its size at address 0.
        placed.setdefault(slot, []).append(any(bar["start"] for bar in bars(line)))
    assert len(placed) == len(row["gpus"]), output[-3000:]
    assert sum(map(all, placed.values())) == row["placed"], listing
    assert sum(found[0] for found in placed.values()) == row.get("largest", row["placed"]), listing


def run(image: Image, directory: Path, row: dict[str, Any]) -> str:
    """The output of an instance with the firmware, RAM and GPUs of a row."""
    initramfs = directory / "initramfs"
    first = image.guest_initramfs.read_bytes()
    early = first + bytes(-len(first) % 4)
    initramfs.write_bytes(write_image({"init": (0o755, INIT.encode())}, early=early))
    memory = f"{row['ram']}G" if "ram" in row else "512M"
    argv = [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        *("-machine", "q35,accel=tcg,memory-backend=ram", "-m", memory),
        # The firmware sees all of this memory, the kernel uses 1 GiB (mem=).
        *("-object", f"memory-backend-ram,id=ram,size={memory},reserve=off"),
        *("-cpu", f"max,phys-bits={row['bits']},vendor={row.get('vendor', 'AuthenticAMD')}"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(image.kernel), "-initrd", str(initramfs), "-append", ARGUMENTS),
    ]
    if row["firmware"] == "UEFI":
        variables = directory / "variables"
        shutil.copyfile(FIRMWARE_VARIABLES, variables)
        argv += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE_CODE}"]
        argv += ["-drive", f"if=pflash,format=raw,unit=1,file={variables}"]
    for number, gpu in enumerate(row["gpus"]):
        argv += ["-device", f"pcie-root-port,id=gpu{number},chassis={number},bus=pcie.0,addr={number + 4:x}.0"]
        for function, size in enumerate(gpu):
            several = ",multifunction=on" if function == 0 and len(gpu) > 1 else ""
            argv += ["-device", f"pci-testdev,bus=gpu{number},addr=0.{function:x},membar={size}M{several}"]
    for number in range(row.get("ports", 0)):
        argv += ["-device", f"pcie-root-port,id=other{number},chassis={99 - number},bus=pcie.0,addr={30 - number:x}.0"]
    process = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    return process.stdout.replace("\r", "") + process.stderr

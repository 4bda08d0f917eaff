"""Boot scripts of an initramfs: run by a real shell, with a ``/sys`` of files in place of the kernel's.

The script's writes are applied to the stand-in kernel: ``driver_override`` and ``unbind`` of functions, modules
requested from modprobe, and addresses written to ``drivers_probe`` (kernel:
``Documentation/ABI/testing/sysfs-bus-pci``).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.initramfs import at_root
from gpustack_demo.examples.kmod import Userspace
from gpustack_demo.examples.machine import Device

_PROBE = "sys/bus/pci/drivers_probe"
_MODPROBE = '#!/bin/sh\necho "modprobe $*" >> "{pipe}"\n'
_PIPE_SIZE = 65536


def run_script(name: str, text: str, userspace: Userspace) -> dict[str, str]:
    """Run a boot script at the start of the initramfs; return the files that it leaves below ``/run``.

    After the script has ended, modules are loaded and functions probed in the order of its requests.

    :raises StandInError: when the script fails.
    """
    kernel = userspace.kernel
    with tempfile.TemporaryDirectory(prefix="initramfs-") as temporary:
        root = Path(temporary)
        for directory in ("dev", "run", "sbin", "sys/bus/pci/devices"):
            (root / directory).mkdir(parents=True)
        # All requests to the kernel go through one pipe, so that their order is kept.
        os.mkfifo(root / _PROBE)
        pipe = os.open(root / _PROBE, os.O_RDWR | os.O_NONBLOCK)
        try:
            (root / "sbin/modprobe").write_text(_MODPROBE.format(pipe=root / _PROBE), encoding="utf-8")
            (root / "sbin/modprobe").chmod(0o755)
            for device in kernel.devices:
                _write_device(root / "sys/bus/pci/devices" / device.address, device, kernel.drivers.get(device.address))
            _run(name, at_root(text, root), root)
            requests = _read(pipe)
        finally:
            os.close(pipe)
        for device in kernel.devices:
            unbound = root / "sys/bus/pci/devices" / device.address / "driver/unbind"
            if unbound.exists() and unbound.read_text().strip() == device.address:
                del kernel.drivers[device.address]
            override = (root / "sys/bus/pci/devices" / device.address / "driver_override").read_text().strip()
            if override not in ("", "(null)"):
                kernel.overrides[device.address] = override
        _ask(userspace, requests)
        return {
            f"/{path.relative_to(root)}": path.read_text(encoding="utf-8")
            for path in (root / "run").rglob("*")
            if path.is_file()
        }


def _write_device(directory: Path, device: Device, driver: str | None) -> None:
    sub_vendor, sub_product = device.subsystem or ("0000", "0000")
    directory.mkdir()
    for attribute, value in (
        ("vendor", f"0x{device.vendor}"),
        ("device", f"0x{device.product}"),
        ("subsystem_vendor", f"0x{sub_vendor}"),
        ("subsystem_device", f"0x{sub_product}"),
        ("class", f"0x{device.pci_class}"),
        ("driver_override", "(null)"),
    ):
        (directory / attribute).write_text(f"{value}\n", encoding="utf-8")
    if driver is not None:
        (directory / "driver").mkdir()


def _run(name: str, script: str, root: Path) -> None:
    process = subprocess.run(
        ["/bin/sh", "-c", script, name],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "MODPROBE_OPTIONS": "-qb"},
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0 or process.stderr:
        raise StandInError(f"the boot script {name} failed with {process.returncode}: {process.stderr.strip()}")


def _read(pipe: int) -> list[str]:
    try:
        return os.read(pipe, _PIPE_SIZE).decode().splitlines()
    except BlockingIOError:
        return []


def _ask(userspace: Userspace, requests: list[str]) -> None:
    devices = {device.address: device for device in userspace.kernel.devices}
    for request in requests:
        fields = request.split()
        if fields[0] == "modprobe":
            userspace.load(fields[1], respect_blacklist=True)
        elif fields[0] in devices:
            userspace.kernel.probe(devices[fields[0]])

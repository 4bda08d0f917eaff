"""A stand-in for dracut: builds real images from the directory of an example host.

It follows dracut.conf(5) and dracut.modules(7): the forced drivers, which dracut loads before udev
(``rd.driver.pre``), the installed items, and the requested dracut modules, whose ``install`` is run by a real bash.
``/etc/modprobe.d`` is included only with ``hostonly=yes``.
"""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from pathlib import Path

from gpustack_demo.examples import images
from gpustack_demo.examples.distribution import depmod, object_path
from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.initramfs import closure, replace
from gpustack_demo.examples.kmod import plain
from gpustack_demo.examples.machine import InstalledKernel, Machine

_CONFIGURATION = """
for file in "$1"/etc/dracut.conf "$1"/etc/dracut.conf.d/*.conf; do
    if [ -e "$file" ]; then . "$file"; fi
done
printf '%s\\0' "$force_drivers" "$install_items" "$add_dracutmodules" "$hostonly"
"""
_INSTALL = """
set -e
moddir=$1 initdir=$2
inst_multiple() { :; }
inst_hook() { mkdir -p "$initdir/usr/lib/dracut/hooks/$1"; cp "$3" "$initdir/usr/lib/dracut/hooks/$1/$2-${3##*/}"; }
. "$moddir/module-setup.sh"
install
"""


def dracut(root: Path, arguments: list[str]) -> str:
    """Play ``dracut --force IMAGE RELEASE``; return a description."""
    machine = Machine.load(root)
    if len(arguments) != 3 or arguments[0] != "--force":
        raise StandInError("the stand-in for dracut only plays --force IMAGE RELEASE")
    _, path, release = arguments
    kernel = machine.kernel(release)
    if kernel is None:
        raise StandInError(f"dracut: Cannot find module directory /lib/modules/{release}")
    replace(root / path.lstrip("/"), build(root, kernel))
    return f"Creating initramfs image file {path!r} done"


def build(root: Path, kernel: InstalledKernel) -> bytes:
    """Build the image of one kernel."""
    forced, items, requested, hostonly = (value.split() for value in _bash(_CONFIGURATION, str(root)).split("\0")[:-1])
    for name in forced:
        if kernel.module(name) is None:
            raise StandInError(f"dracut: FAILED: instmods -c {name}: Linux {kernel.release} has no such module")
    included = ["usr/lib/modprobe.d", *(["etc/modprobe.d"] if hostonly == ["yes"] else [])]
    wanted = [path for directory in included for path in sorted((root / directory).glob("*.conf"))]
    wanted += [root / item.lstrip("/") for item in items]
    members = {str(p.relative_to(root)): (stat.S_IMODE(p.stat().st_mode), p.read_bytes()) for p in wanted}
    with tempfile.TemporaryDirectory(prefix="dracut-") as temporary:
        for name in requested:
            for directory in sorted((root / "usr/lib/dracut/modules.d").glob(f"[0-9][0-9]{name}")):
                _bash(_INSTALL, str(directory), temporary)
        for path in Path(temporary).rglob("*"):
            if path.is_file():
                members[str(path.relative_to(temporary))] = (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
    loaded = "".join(f"rd.driver.pre={plain(name)}\n" for name in forced)
    members["etc/cmdline.d/20-force_drivers.conf"] = (0o644, loaded.encode())
    modules = list(closure(root, kernel, forced))
    tree = f"usr/lib/modules/{kernel.release}"
    for file, text in depmod([*modules, *(m for m in kernel.modules if m.builtin)]).items():
        members[f"{tree}/{file}"] = (0o644, text.encode())
    for module in modules:
        members[f"{tree}/{object_path(module)}"] = (0o644, f"the module {module.name}\n".encode())
    members["usr/lib/initrd-release"] = (0o644, b"ID=initramfs\n")
    microcode = [(path, stat.S_IFDIR | 0o755, b"") for path in ("kernel", "kernel/x86", "kernel/x86/microcode")]
    microcode.append(("early_cpio", stat.S_IFREG | 0o644, b"1\n"))
    return images.write_image(members, early=images.archive(microcode))


def _bash(script: str, *arguments: str) -> str:
    process = subprocess.run(
        ["/bin/bash", "-c", script, "dracut", *arguments],
        env={"PATH": os.defpath, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise StandInError(f"dracut: its configuration can't be read: {process.stderr.strip()}")
    return process.stdout

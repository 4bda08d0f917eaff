"""The real ``grub-mkconfig`` of Debian, below a directory; ``tools/setup --unpack grub-common`` unpacks it.

The scripts of the package run unchanged but for their absolute paths. Only ``grub-probe`` and ``grub-mkrelpath`` are
stand-ins: they need a disk.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpustack_demo.embedded.releases import cache_dir

UUID = "3c1b6d0e-8d1c-4c43-9b6d-6a1f8f0a7c55"
_PROBE = f"""\
#!/bin/sh
case "$*" in
*fs_uuid*) echo {UUID} ;;
*target=fs*) echo ext2 ;;
*target=device*) echo /dev/sda1 ;;
*abstraction*) ;;
*hints_string*) ;;
*) echo ext2 ;;
esac
"""
_SCRIPTS = ("00_header", "05_debian_theme", "10_linux", "30_os-prober", "30_uefi-firmware", "40_custom", "41_custom")


def package() -> Path:
    """The directory with the files of grub-common; ``GPUSTACK_GRUB_COMMON`` names that of another release."""
    named = os.environ.get("GPUSTACK_GRUB_COMMON")
    for place in [Path(named)] if named else [cache_dir() / "unpacked/grub-common", Path("/")]:
        if (place / "etc/grub.d/10_linux").is_file() and (place / "usr/sbin/grub-mkconfig").is_file():
            return place
    pytest.skip("grub-common is missing: tools/setup --unpack grub-common")


class Grub:
    """grub-mkconfig for a root; ``/etc/grub.d`` of the root has its scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root.parent / "grub-bin"
        self.bin.mkdir()
        (self.bin / "grub-probe").write_text(_PROBE)
        (self.bin / "grub-mkrelpath").write_text(f'#!/bin/sh\nfor p; do :; done\necho "${{p#{root}}}"\n')
        (self.bin / "grub-script-check").write_text("#!/bin/sh\n")
        for name in ("etc/grub.d", "etc/default/grub.d", "boot/grub", "sys"):
            (root / name).mkdir(parents=True, exist_ok=True)
        source = package()
        self._copy(source / "usr/sbin/grub-mkconfig", self.bin / "grub-mkconfig")
        share = self.bin / "share/grub"
        share.mkdir(parents=True)
        self._copy(source / "usr/share/grub/grub-mkconfig_lib", share / "grub-mkconfig_lib")
        for name in _SCRIPTS:
            if (source / "etc/grub.d" / name).is_file():
                self._copy(source / "etc/grub.d" / name, root / "etc/grub.d" / name)
        uuids = root / "dev/disk/by-uuid"
        uuids.mkdir(parents=True)
        (uuids / UUID).touch()
        for tool in self.bin.iterdir():
            if tool.is_file():
                tool.chmod(0o755)

    def _copy(self, source: Path, target: Path) -> None:
        text = source.read_text()
        text = re.sub(r"(?<![\w$}.])/(boot|etc|dev/disk|vmlinuz|vmlinux|sys)\b", rf"{self.root}/\1", text)
        text = (
            text.replace("/usr/share/grub/", f"{self.bin}/share/grub/")
            .replace('"/usr/share"', f'"{self.bin}/share"')
            .replace('"/usr"', f'"{self.bin}"')
        )
        text = text.replace("${sbindir}", str(self.bin)).replace("${bindir}", str(self.bin))
        text = re.sub(r"^(sbindir|bindir)=.*$", rf'\1="{self.bin}"', text, flags=re.MULTILINE)
        target.write_text(text)
        target.chmod(source.stat().st_mode & 0o777)

    def generate(self) -> str:
        """The menu that grub-mkconfig writes, with paths as on the host."""
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "EUID": "0", "LC_ALL": "C"}
        shell = shutil.which("dash") or "/bin/sh"
        ran = subprocess.run(
            [shell, self.bin / "grub-mkconfig"], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.replace(str(self.root), "")

"""The text of configuration files that matter for passthrough."""

import fnmatch
import re
import stat
from typing import Any, Dict, Iterable, List, Optional, Set

from .limits import TEXT_LIMIT
from .mounts import BOOT_PARTITIONS
from .reader import HostRoot

RELEVANT = re.compile(
    r"\bblacklist\b|vfio|pci[-_]stub|nouveau|nvidia|nova[-_](?:core|drm)|amdgpu|radeon|\bi915\b|\bxe\b|snd[-_]hda[-_]intel"
)

OURS = "*gpustack*"
CONFIGURATION = (
    "/etc/default/grub",
    "/etc/default/grub.d/*.cfg",
    "/etc/grub.d/" + OURS,
    "/etc/grub.d/40_custom",
    *(directory + "/custom.cfg" for directory in ("/boot/grub", "/boot/grub2")),
    "/etc/fstab",
    "/etc/crypttab",
    *(partition + "/loader/loader.conf" for partition in BOOT_PARTITIONS),
    "/etc/modprobe.d/*.conf",
    "/etc/modules",
    "/etc/modules-load.d/*.conf",
    "/etc/initramfs-tools/modules",
    "/etc/initramfs-tools/initramfs.conf",
    "/etc/initramfs-tools/update-initramfs.conf",
    "/etc/initramfs-tools/conf.d/*",
    "/etc/initramfs-tools/hooks/" + OURS,
    "/etc/initramfs-tools/scripts/*/" + OURS,
    "/etc/dracut.conf",
    "/etc/dracut.conf.d/*.conf",
    "/usr/lib/dracut/modules.d/" + OURS + "/*",
    "/etc/mkinitcpio.conf",
    "/etc/mkinitcpio.conf.d/*.conf",
    "/etc/kernel/cmdline",
    "/etc/kernel/proxmox-boot-uuids",
    "/etc/kernel/tries",
    "/etc/kernel/install.conf",
    "/etc/kernel/install.conf.d/*.conf",
    "/usr/lib/kernel/cmdline",
    "/usr/lib/kernel/install.conf",
    "/usr/lib/kernel/install.conf.d/*.conf",
    *(partition + "/loader/entries.srel" for partition in BOOT_PARTITIONS),
    "/etc/tuned/bootcmdline",
    "/etc/driverctl.d/*",
    "/etc/mdevctl.d/*/*",
    "/etc/rc.local",
    "/etc/rc.d/rc.local",
    "/etc/udev/rules.d/" + OURS,
    "/etc/systemd/system/" + OURS,
    "/etc/systemd/system/*.target.d/" + OURS,
    "/usr/local/sbin/" + OURS,
    "/run/gpustack/*",
    "/var/lib/gpustack/*",
)
# Directories of packages: only files that mention passthrough or a GPU driver (RELEVANT) are collected.
VENDOR_CONFIGURATION = tuple(
    f"{directory}/{name}"
    for name in ("modprobe.d/*.conf", "modules-load.d/*.conf", "dracut/dracut.conf.d/*.conf")
    for directory in ("/run", "/usr/local/lib", "/usr/lib", "/lib")
)
# Further places of hand-made binding: only files that bind devices (HAND_MADE) are collected.
SCRIPTS = (
    *("/etc/systemd/system/*.service.d/*.conf", "/etc/systemd/system/*.wants/*@*.service"),
    *("/etc/initramfs-tools/hooks/*", "/etc/initramfs-tools/scripts/*/*"),
    *("/etc/crontab", "/etc/cron.d/*", "/var/spool/cron/*", "/var/spool/cron/crontabs/*", "/etc/init.d/*"),
    *("/etc/libvirt/hooks/*", "/etc/libvirt/hooks/qemu.d/*", "/etc/libvirt/hooks/qemu.d/*/*/*/*"),
    *("/usr/lib/dracut/modules.d/*/*.sh", "/var/lib/cloud/scripts/per-boot/*"),
)
# The same; a file hides files of the same name in later directories (systemd.unit(5), tmpfiles.d(5), udev(7)).
_PRECEDENCE = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
SEARCHED = tuple(
    tuple(f"{base}/{pattern}" for base in _PRECEDENCE)
    for pattern in ("udev/rules.d/*.rules", "systemd/system/*.service", "tmpfiles.d/*.conf")
)
_BINDS = (
    r"vfio[-_]pci|pci[-_]stub|driver_override|/sys/bus/pci/|/drivers_probe\b|ATTR\{remove\}"
    r"|sriov_numvfs|\bsetpci\b|\bsriov-manage\b|\b[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]\b"
)
HAND_MADE = re.compile(_BINDS + "|vfio")
BY_PACKAGES = re.compile(_BINDS)  # udev's own rules name /dev/vfio/vfio
# Administrators' programs, which a unit, a cron table or rc.local may run.
_PROGRAM = re.compile(r"(?<![\w./-])/(?:etc|home|opt|root|srv|usr/local)/[\w./+-]*[\w+-]")
_RUNS_PROGRAMS = ("/etc/crontab", "/etc/cron.d/", "/var/spool/cron/", "/etc/rc.", "/etc/systemd/system/")
_PROGRAM_LIMIT = 64


def matching(host: HostRoot, pattern: str) -> List[str]:
    """The paths that match a shell pattern; ``*`` does not match ``/``."""
    paths = [""]
    for part in pattern.split("/")[1:]:
        if "*" in part:
            paths = [
                f"{base}/{name}"
                for base in paths
                for name in (host.names(base) if is_directory(host, base) else ())
                if fnmatch.fnmatchcase(name, part)
            ]
        else:
            paths = [f"{base}/{part}" for base in paths]
    return paths


def is_directory(host: HostRoot, path: str) -> bool:
    """Whether a path leads to a directory."""
    status = host.status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def configuration_file(host: HostRoot, path: str) -> Optional[Dict[str, Any]]:
    """Text, mode, mtime and link of a file. A link to ``/dev/null``, which masks a vendor's file, is an empty file."""
    link = host.link(path)
    if link == "/dev/null":
        return {"text": "", "mode": "0666", "mtime_ns": None}
    status = host.status(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return None
    text = host.text(path, TEXT_LIMIT)
    if text is None:
        return None
    file = {"text": text, "mode": f"{stat.S_IMODE(status.st_mode):04o}", "mtime_ns": status.st_mtime_ns}
    return {**file, "link": link} if link else file


def configuration_files(host: HostRoot) -> Dict[str, Dict[str, Any]]:
    """The configuration files that matter for passthrough, by path."""
    files: Dict[str, Dict[str, Any]] = {}
    merged = host.link("/lib") is not None  # /lib is /usr/lib: the same files under a second name
    programs: Set[str] = set()
    scripts = [path for pattern in SCRIPTS for path in matching(host, pattern)]
    for patterns in SEARCHED:
        scripts += searched(host, [pattern for pattern in patterns if not (merged and pattern.startswith("/lib/"))])
    for path in scripts:
        entry = configuration_file(host, path)
        if entry is not None and path.startswith(_RUNS_PROGRAMS):
            programs.update(_PROGRAM.findall(entry["text"]))
        wanted = HAND_MADE if path.startswith(("/etc/", "/var/")) else BY_PACKAGES
        if entry is not None and (wanted.search(entry["text"]) or wanted.search(path)):
            files[path] = entry
    for pattern in CONFIGURATION + VENDOR_CONFIGURATION:
        if merged and pattern.startswith("/lib/"):
            continue
        for path in matching(host, pattern):
            entry = configuration_file(host, path) if path not in files else None
            if entry is not None and (pattern in CONFIGURATION or RELEVANT.search(entry["text"])):
                files[path] = entry
            if entry is not None and path.startswith(_RUNS_PROGRAMS):
                programs.update(_PROGRAM.findall(entry["text"]))
    for path in sorted(programs)[:_PROGRAM_LIMIT]:
        status = host.status(path) if path not in files else None
        if status is None or not stat.S_ISREG(status.st_mode) or host.head(path, 2) != b"#!":
            continue
        entry = configuration_file(host, path)
        if entry is not None and HAND_MADE.search(entry["text"]):
            files[path] = entry
    return files


def searched(host: HostRoot, patterns: Iterable[str]) -> List[str]:
    """The files that match the patterns; of files with the same name, only that of the first pattern."""
    chosen: Dict[str, str] = {}
    for pattern in patterns:
        for path in matching(host, pattern):
            chosen.setdefault(path.rpartition("/")[2], path)
    return sorted(chosen.values())

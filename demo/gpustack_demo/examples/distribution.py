"""The files of Debian and Ubuntu on a host's disk that concern booting and binding."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpustack_demo.examples import redhat, systemd_boot
from gpustack_demo.examples.machine import InstalledKernel, Machine, Module

# Modules whose file names contain _; others use -.
_UNDERSCORED = frozenset({"mlx5_core", "vfio_iommu_type1", "vfio_virqfd"})
# The functions that an initramfs-tools hook may call (initramfs-tools(7)); they only record the request.
HOOK_FUNCTIONS = """\
manual_add_modules() { for _m in "$@"; do echo "$_m" >> "$DESTDIR/.modules"; done; }
force_load() { manual_add_modules "$1"; mkdir -p "$DESTDIR/conf"; echo "$*" >> "$DESTDIR/conf/modules"; }
copy_modules_dir() { echo "$1/" >> "$DESTDIR/.modules"; }
copy_file() { mkdir -p "$DESTDIR/$(dirname "${3:-$2}")"; cp "$2" "$DESTDIR/${3:-$2}"; }
copy_exec() { :; }
"""
# The relevant boot scripts of the distribution's initramfs: their names and order. gpustack_demo.examples.boot plays
# udev's.
_INIT_TOP = """\
#!/bin/sh
PREREQ=""
case "$1" in
prereqs) echo "$PREREQ"; exit 0 ;;
esac
"""
_TOOLS = ("update-initramfs", "update-grub", "grub-mkconfig", "mkinitramfs")
_NO_TOOL = "#!/bin/sh\necho 'an example host: its tools are played by gpustack_demo.examples.standin' >&2\nexit 1\n"
# modprobe(8) as hooks use it: whether a kernel has a module, as a file or built in.
_MODPROBE = """\
#!/bin/sh
name=
for word in "$@"; do
    case "$word" in
    --set-version=*) release=${word#--set-version=} ;;
    --show-depends) show=yes ;;
    -*) ;;
    *) name=$(echo "$word" | sed 's/[-_]/[-_]/g') ;;
    esac
done
if [ "${show:-no}" = no ]; then
    echo 'an example host: its kernel is played by gpustack_demo.examples.standin' >&2
    exit 1
fi
tree="$(dirname "$0")/../lib/modules/$release"
if found=$(grep "/$name\\.ko:" "$tree/modules.dep"); then
    for path in ${found#*:}; do echo "insmod /lib/modules/$release/$path"; done
    echo "insmod /lib/modules/$release/${found%%:*}"
elif grep -q "/$name\\.ko\\$" "$tree/modules.builtin"; then
    echo "builtin $name"
else
    exit 1
fi
"""
_DIRECTORIES = (
    "boot/grub",
    "dev",
    "etc/grub.d",
    "etc/initramfs-tools/conf.d",
    "etc/initramfs-tools/hooks",
    "etc/initramfs-tools/scripts/init-top",
    "etc/modprobe.d",
    "etc/modules-load.d",
    "run",
    "tmp",
    "usr/bin",
    "usr/lib/modprobe.d",
    "usr/sbin",
    "var/lib",
    "var/log",
)
_FILES = {
    "/etc/initramfs-tools/initramfs.conf": """\
MODULES=most
BUSYBOX=auto
KEYMAP=n
COMPRESS=gzip
DEVICE=
NFSROOT=auto
RUNSIZE=10%
FSTYPE=auto
""",
    "/etc/initramfs-tools/update-initramfs.conf": "update_initramfs=yes\nbackup_initramfs=no\n",
    "/etc/initramfs-tools/modules": "# List of modules that you want to include in your initramfs.\n",
    "/etc/modules": "# /etc/modules: kernel modules to load at boot time.\n",
    "/etc/modprobe.d/dkms.conf": "# modprobe information used for DKMS modules\n",
    "/usr/lib/modprobe.d/aliases.conf": "alias char-major-10-235 autofs4\n",
    "/usr/lib/modprobe.d/fbdev-blacklist.conf": "blacklist nvidiafb\nblacklist rivafb\nblacklist radeonfb\n",
    "/usr/share/initramfs-tools/hook-functions": HOOK_FUNCTIONS,
}


# Files that a host lacks because of its distribution family or boot loader.
_DEBIAN_ONLY = ("boot/grub", "etc/grub.d", "etc/initramfs-tools", "etc/modules", "usr/share/initramfs-tools")
_GRUB_ONLY = ("boot/grub", "etc/grub.d")
_GRUB_TOOLS = ("update-grub", "grub-mkconfig")


def write_distribution(root: Path, machine: Machine) -> None:
    """Write the complete disk, except the boot menu and the initramfs images, which the stand-ins build."""
    redhats = redhat.is_redhat(machine)
    missing = _DEBIAN_ONLY if redhats else _GRUB_ONLY if machine.loader != "grub" else ()
    specific = redhat if redhats else systemd_boot if machine.loader == "systemd-boot" else None
    common = [d for d in _DIRECTORIES if not _is_below(d, missing)]
    for directory in (*common, *(specific.DIRECTORIES if specific else ())):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for link in ("bin", "lib", "sbin"):
        (root / link).symlink_to(f"usr/{link}")
    if not redhats:
        (root / "etc/modules-load.d/modules.conf").symlink_to("../modules")
    usual = {path: text for path, text in _FILES.items() if not _is_below(path.lstrip("/"), missing)}
    for path, text in {
        **usual,
        **(specific.files(machine) if specific else {}),
        **_identity(machine),
        **machine.files,
    }.items():
        _write(root, path, text)
    tools = () if redhats else _TOOLS if machine.loader == "grub" else [t for t in _TOOLS if t not in _GRUB_TOOLS]
    for tool in (*tools, *(specific.TOOLS if specific else ())):
        _write(root, f"/usr/sbin/{tool}", _NO_TOOL, 0o755)
    _write(root, "/usr/sbin/modprobe", _MODPROBE, 0o755)
    for script in () if redhats else ("all_generic_ide", "blacklist", "keymap", "udev"):
        _write(root, f"/usr/share/initramfs-tools/scripts/init-top/{script}", _INIT_TOP, 0o755)
    for kernel in machine.kernels:
        _write_kernel(root, kernel)


def _is_below(path: str, directories: Iterable[str]) -> bool:
    return any(path == directory or path.startswith(f"{directory}/") for directory in directories)


def _identity(machine: Machine) -> dict[str, str]:
    return {
        "/etc/hostname": f"{machine.name}\n",
        "/etc/os-release": "".join(f'{key}="{value}"\n' for key, value in machine.os_release.items()),
        "/etc/fstab": f"UUID={machine.root_uuid} / ext4 errors=remount-ro 0 1\n",
    }


def _write_kernel(root: Path, kernel: InstalledKernel) -> None:
    release = kernel.release
    _write(root, f"/boot/vmlinuz-{release}", f"the image of Linux {release} of an example host\n")
    _write(root, f"/boot/config-{release}", "".join(f"{k}={v}\n" for k, v in sorted(kernel.config.items())))
    tree = f"/usr/lib/modules/{release}"
    for name, text in depmod(kernel.modules).items():
        _write(root, f"{tree}/{name}", text)
    for module in kernel.modules:
        if not module.builtin:
            _write(root, f"{tree}/{object_path(module)}", f"the module {module.name} of an example host\n")


def object_path(module: Module) -> str:
    """The path of a module below ``/lib/modules/RELEASE``: ``kernel/drivers/vfio/pci/vfio-pci.ko``."""
    directory = module.path.removeprefix("../") if module.path.startswith("../") else f"kernel/{module.path}"
    name = module.name if module.name in _UNDERSCORED else module.name.replace("_", "-")
    return f"{directory}/{name}.ko"


def depmod(modules: Iterable[Module]) -> dict[str, str]:
    """The files that ``depmod`` writes for a tree of modules (depmod(8), modules.dep(5))."""
    all_modules = list(modules)
    files = {m.name: object_path(m) for m in all_modules if not m.builtin}
    by_name = {m.name: m for m in all_modules}

    def needed(module: Module) -> list[str]:
        out: list[str] = []
        for name in module.needs:
            if name in files and files[name] not in out:
                out += [files[name], *(p for p in needed(by_name[name]) if p not in out)]
        return out

    return {
        "modules.dep": "".join(
            f"{files[m.name]}: {' '.join(needed(m))}".rstrip() + "\n" for m in all_modules if not m.builtin
        ),
        "modules.alias": "# Aliases extracted from modules themselves.\n"
        + "".join(
            f"alias {alias} {m.name}\n"
            for m in all_modules
            if not m.builtin
            for aliases in m.drivers.values()
            for alias in aliases
        ),
        "modules.builtin": "".join(f"{object_path(m)}\n" for m in all_modules if m.builtin),
        "modules.builtin.modinfo": "".join(
            f"{m.name}.alias={alias}\0"
            for m in all_modules
            if m.builtin
            for aliases in m.drivers.values()
            for alias in aliases
        ),
        "modules.order": "".join(f"{object_path(m)}\n" for m in all_modules if not m.builtin),
        "modules.softdep": "# Soft dependencies extracted from modules themselves.\n",
    }


def _write(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)

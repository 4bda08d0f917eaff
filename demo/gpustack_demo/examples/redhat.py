"""Boot files of RHEL and derivatives, and stand-ins for grubby and GRUB.

They follow grubby(8), the Boot Loader Specification and ``grub-core/lib/envblk.c``; they have not been compared with a
real RHEL. RHEL 9 writes the complete command line into each entry; RHEL 8 references ``$kernelopts``, which is in
GRUB's environment block.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.grub import Entry
from gpustack_demo.examples.machine import Machine

FAMILY = frozenset({"rhel", "rocky", "almalinux", "centos"})
_ENTRIES = Path("boot/loader/entries")
_GRUB = Path("boot/grub2")
_MACHINE_ID = "4f0c1d7a9b3e4c55a1b2c3d4e5f60718"
_BLOCK = 1024  # size of GRUB's environment block
_HEAD = "# GRUB Environment Block\n"
_OPTIONS = "root=/dev/mapper/rl-root ro crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M rd.lvm.lv=rl/root rhgb quiet"
DIRECTORIES = ("boot/grub2", "boot/loader/entries", "etc/dracut.conf.d", "etc/kernel", "usr/lib/dracut/modules.d")
TOOLS = ("dracut", "grub2-mkconfig", "grubby", "kernel-install")


def is_redhat(machine: Machine) -> bool:
    """Whether a machine runs RHEL or a derivative."""
    return machine.os_release["ID"] in FAMILY


def image_of(machine: Machine, release: str) -> Path:
    """The path of a kernel's initramfs, below the root."""
    return Path(f"boot/initramfs-{release}.img" if is_redhat(machine) else f"boot/initrd.img-{release}")


def files(machine: Machine) -> dict[str, str]:
    """The boot-related files of the distribution."""
    is_8 = machine.os_release["VERSION_ID"].startswith("8")
    name = f"{machine.os_release['NAME']} ({{}}) {machine.os_release['VERSION']}"
    texts = {
        "/etc/machine-id": f"{_MACHINE_ID}\n",
        "/etc/dracut.conf": '# PUT YOUR CONFIG IN separate files in /etc/dracut.conf.d named "<name>.conf"\n',
        "/etc/default/grub": "GRUB_TIMEOUT=5\n"
        f"GRUB_DISTRIBUTOR=\"$(sed 's, release .*$,,g' /etc/system-release)\"\n"
        "GRUB_DEFAULT=saved\nGRUB_DISABLE_SUBMENU=true\n"
        f'GRUB_CMDLINE_LINUX="{_OPTIONS.partition(" ro ")[2]}"\n'
        'GRUB_DISABLE_RECOVERY="true"\nGRUB_ENABLE_BLSCFG=true\n',
        "/boot/grub2/grub.cfg": 'set default_kernelopts="root=/dev/mapper/rl-root ro"\ninsmod blscfg\nblscfg\n',
        "/boot/grub2/grubenv": _block({"kernelopts": _OPTIONS} if is_8 else {"boot_success": "1"}),
    }
    if not is_8:
        texts["/etc/kernel/cmdline"] = f"{_OPTIONS}\n"
    for kernel in machine.kernels:
        release = kernel.release
        texts[f"/{_ENTRIES}/{_MACHINE_ID}-{release}.conf"] = (
            f"title {name.format(release)}\nversion {release}\nlinux /vmlinuz-{release}\n"
            f"initrd /initramfs-{release}.img{' $tuned_initrd' if is_8 else ''}\n"
            f"options {'$kernelopts $tuned_params' if is_8 else _OPTIONS}\n"
            "grub_users $grub_users\ngrub_arg --unrestricted\n"
        )
    return texts


def _block(variables: dict[str, str]) -> str:
    text = _HEAD + "".join(f"{name}={value}\n" for name, value in variables.items())
    if len(text) > _BLOCK:
        raise StandInError("grub2-editenv: environment block too small")
    return text.ljust(_BLOCK, "#")


def _variables(root: Path) -> dict[str, str]:
    text = (root / _GRUB / "grubenv").read_text(encoding="utf-8").removeprefix(_HEAD).rstrip("#")
    return dict(line.split("=", 1) for line in text.splitlines())


def grubby(root: Path, arguments: list[str]) -> str:
    """Play ``grubby --update-kernel=ALL [--remove-args=…] [--args=…] --no-etc-grub-update``; return a description.

    An added argument replaces those of the same name. For entries with ``$kernelopts``, GRUB's environment block is
    changed, for all others the entry itself. The first line of ``/etc/kernel/cmdline`` is changed too; if the file is
    missing, it is made of the last entry's arguments (``update_bls_fragment`` of grubby-bls 8.40, in RHEL 8.8 and 9.2).
    """
    options = dict(argument.partition("=")[::2] for argument in arguments)
    if options.pop("--update-kernel", None) != "ALL" or options.pop("--no-etc-grub-update", None) != "":
        raise StandInError("the stand-in for grubby only plays --update-kernel=ALL with --no-etc-grub-update")
    removed, added = options.pop("--remove-args", ""), options.pop("--args", "")
    if options:
        raise StandInError(f"the stand-in for grubby does not know {' '.join(options)}")

    def update(line: str) -> str:
        names = {item.partition("=")[0] for item in added.split()}
        retained = [
            item
            for item in line.split()
            if item not in removed.split() and item.partition("=")[0] not in names | set(removed.split())
        ]
        return " ".join([*retained, *added.split()])

    uses_block, last = False, ""
    for path in sorted((root / _ENTRIES).glob("*.conf"), reverse=True):
        text = path.read_text(encoding="utf-8")
        line = re.search(r"^options (.*)$", text, re.MULTILINE)
        last = line[1] if line is not None else last
        if line is not None and "$kernelopts" in line[1]:
            uses_block = True
        elif line is not None:
            path.write_text(text[: line.start(1)] + update(line[1]) + text[line.end(1) :], encoding="utf-8")
    if uses_block:
        variables = _variables(root)
        variables["kernelopts"] = update(variables["kernelopts"])
        (root / _GRUB / "grubenv").write_text(_block(variables), encoding="utf-8")
    cmdline = root / "etc/kernel/cmdline"
    if uses_block:
        last = last.replace("$kernelopts", variables["kernelopts"])
    cmdline.parent.mkdir(parents=True, exist_ok=True)
    text = cmdline.read_text(encoding="utf-8") if cmdline.exists() else last
    cmdline.write_text(f"{update(text.partition(chr(10))[0])}\n", encoding="utf-8")
    return f"-{removed!r} +{added!r}"


def default_entry(root: Path, machine: Machine) -> Entry:
    """The entry that GRUB boots by default: that of the newest kernel."""
    release = machine.kernels[0].release
    text = (root / _ENTRIES / f"{_MACHINE_ID}-{release}.conf").read_text(encoding="utf-8")
    fields = dict(line.split(" ", 1) for line in text.splitlines())
    values = _variables(root)
    options = re.sub(r"\$(\w+)", lambda match: values.get(match[1], ""), fields["options"]).split()
    arguments = " ".join([f"BOOT_IMAGE=(hd0,gpt2){fields['linux']}", *options])
    return Entry(title=fields["title"], release=release, arguments=arguments)

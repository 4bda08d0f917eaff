"""What the lab's host is made of: packages, files, and the two scripts that run while its image is built.

Everything here decides the contents of the image, so the cache key is a hash of this module and of the builder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["initramfs-tools", "dracut", "systemd-boot", "compute", "debian13"]
"""What makes the host's initramfs, with GRUB; or systemd-boot, with initramfs-tools; or with GRUB, initramfs-tools,
libvirt and nova-compute: Nova from PyPI on Debian 12, or Debian 13's packages."""

SUITES = ("bookworm", "trixie")
HOST_NAME = "lab1"
OPERATOR = "deploy"
ROOT_LABEL = "root"
ROOT_SIZE = "8G"
ESP_MEBIBYTES = 48
GUEST_INITRAMFS = "/srv/lab/guest.cpio"
GUEST_KERNEL = "/vmlinuz"
GUEST_SPEAKS = "GUEST-LSPCI-BEGIN"
GUEST_IS_DONE = "GUEST-LSPCI-END"
GUEST_STAYS = "guest.stays"

PACKAGES = (
    "busybox-static",
    "ca-certificates",
    "cpio",
    "dbus",
    "dosfstools",
    "iproute2",
    "kmod",
    "linux-image-amd64",
    "openssh-server",
    "pciutils",
    "procps",
    "python3",
    "qemu-system-x86",
    "sudo",
    "systemd-sysv",
    "udev",
    "zstd",
)

# What nova-compute needs beside its own tree in /opt/nova (see opt_nova.py).
# libvirt creates mediated devices with mdevctl.
COMPUTE_PACKAGES = ("libvirt-clients", "libvirt-daemon-system", "mdevctl", "python3-libvirt", "qemu-utils")

# Debian's package enables its unit; without a configuration, the service would fail and start again all the time.
DISABLE_NOVA_COMPUTE = "systemctl disable --quiet nova-compute.service\n"

# As Debian's package starts it, but as root: the tree in /opt/nova has no rootwrap.
NOVA_COMPUTE_UNIT = """\
[Unit]
Description=OpenStack Nova Compute
After=network.target libvirtd.service

[Service]
ExecStart=/opt/nova/bin/nova-compute --config-file=/etc/nova/nova.conf
Restart=on-failure
TimeoutStopSec=65

[Install]
WantedBy=multi-user.target
"""

# The argument list a server with a serial console has, and two for emulation: mitigations=off makes it a fifth
# faster; no_timer_check leaves out a test against the clock that a busy machine fails: the kernel then panics with
# "timer doesn't work through Interrupt-remapped IO-APIC".
KERNEL_ARGUMENTS = "console=tty0 console=ttyS0,115200n8 mitigations=off no_timer_check"

# Timers and services that would use the emulated CPU, or write on the disk, in the middle of a test.
MASKED_UNITS = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "man-db.timer",
    "systemd-tmpfiles-clean.timer",
)


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """One file (or symbolic link) that is added to the packages' own."""

    path: str
    text: str = ""
    mode: int = 0o644
    owner: int = 0
    link: str | None = None


# /etc/default/grub as Debian's package writes it, but for the time-out and the serial console.
DEFAULT_GRUB = f"""\
# If you change this file, run 'update-grub' afterwards to update
# /boot/grub/grub.cfg.
# For full documentation of the options in this file, see:
#   info -f grub -n 'Simple configuration'

GRUB_DEFAULT=0
GRUB_TIMEOUT=1
GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="{KERNEL_ARGUMENTS}"
"""

# The guest's whole user space: it says what PCI functions it has, and ends, unless a kernel argument has it stay. A
# reset, not a power-off, because that works without ACPI, and QEMU's -no-reboot turns it into an end.
GUEST_INIT = f"""\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
exec >/dev/ttyS0 2>&1
echo {GUEST_SPEAKS}
/bin/lspci -Dn
echo {GUEST_IS_DONE}
while /bin/busybox grep -q {GUEST_STAYS} /proc/cmdline; do /bin/busybox sleep 3600; done
/bin/busybox reboot -f
"""

MAKE_GUEST_INITRAMFS = f"""\
#!/bin/sh
# Packs busybox, lspci and its libraries, and an init that runs lspci.
set -eu
tree=$(mktemp -d)
mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys"
cp /bin/busybox "$tree/bin/busybox"
cp /usr/bin/lspci "$tree/bin/lspci"
ldd /usr/bin/lspci | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$tree$(dirname "$library")"
    cp -L "$library" "$tree$library"
done
cp /srv/lab/guest-init "$tree/init"
chmod 0755 "$tree/init"
(cd "$tree" && find . | cpio --quiet -o -H newc -R 0:0) >{GUEST_INITRAMFS}
rm -r "$tree"
"""

# Runs in the image's chroot, natively.
IN_CHROOT = f"""\
#!/bin/sh
set -eu
useradd --create-home --uid 1000 --shell /bin/bash {OPERATOR}
chown -R {OPERATOR}: /home/{OPERATOR}
systemctl enable --quiet systemd-networkd.service
sh /srv/lab/make-guest-initramfs
"""

# dracut for this host only, and without what costs time under emulation and holds no driver.
DRACUT_CONF = """\
hostonly=yes
hostonly_mode=strict
compress="zstd -1 -q"
do_strip=no
early_microcode=no
omit_dracutmodules+=" busybox crypt dm dmraid i18n lvm mdraid multipath nvdimm plymouth resume rngd terminfo "
"""

_GRUB = """\
grub-install --target=x86_64-efi --efi-directory=/boot/efi --removable --no-nvram
grub-editenv /boot/grub/grubenv create
{rebuild}
update-grub"""
# What the package does where it finds an EFI partition; update-initramfs has kernel-install make the entry.
_SYSTEMD_BOOT = """\
bootctl install --make-machine-id-directory=auto --no-variables
{rebuild}"""
# bootctl wants a partition, not a file system alone.
_PARTITION = """\
echo type=uefi | sfdisk --quiet --label gpt /dev/vdb
udevadm settle
esp=/dev/vdb1"""
_REBUILD = {
    "initramfs-tools": "update-initramfs -u -k all",
    "dracut": 'for kernel in /lib/modules/*; do dracut --force "/boot/initrd.img-${kernel##*/}" "${kernel##*/}"; done',
}
# Runs once in the booted host, as its installer would: what needs the real machine to look at.
_ON_FIRST_BOOT = """\
#!/bin/sh
set -eu
{esp}
mkfs.vfat -n ESP "$esp" >/dev/null
mkdir -p /boot/efi
echo "UUID=$(blkid -s UUID -o value "$esp") /boot/efi vfat umask=0077 0 0" >>/etc/fstab
mount /boot/efi
{loader}
sync
"""


def suite(kind: Kind) -> str:
    """The release of Debian of a kind of host."""
    return SUITES[kind == "debian13"]


def packages(kind: Kind) -> tuple[str, ...]:
    """The packages of a kind of host."""
    loader = ("systemd-boot", "fdisk") if kind == "systemd-boot" else ("grub-efi-amd64",)
    compute = {"compute": COMPUTE_PACKAGES, "debian13": ("nova-compute-kvm",)}.get(kind, ())
    return (*PACKAGES, *loader, *compute, _initramfs_tool(kind))


def _initramfs_tool(kind: Kind) -> str:
    return "dracut" if kind == "dracut" else "initramfs-tools"


def _on_first_boot(kind: Kind) -> str:
    systemd_boot = kind == "systemd-boot"
    return _ON_FIRST_BOOT.format(
        esp=_PARTITION if systemd_boot else "esp=/dev/vdb",
        loader=(_SYSTEMD_BOOT if systemd_boot else _GRUB).format(rebuild=_REBUILD[_initramfs_tool(kind)]),
    )


def _initramfs_files(kind: Kind) -> tuple[ImageFile, ...]:
    if kind == "dracut":
        return (ImageFile(path="/etc/dracut.conf.d/10-lab.conf", text=DRACUT_CONF),)
    return (
        # The file that Debian's installer writes when a 'targeted' initramfs is asked for.
        ImageFile(path="/etc/initramfs-tools/conf.d/driver-policy", text="MODULES=dep\n"),
        ImageFile(path="/etc/initramfs-tools/conf.d/compression", text="COMPRESS=zstd\nCOMPRESSLEVEL=1\n"),
    )


def image_files(*, kind: Kind, host_key: str, host_key_public: str, login_key_public: str) -> tuple[ImageFile, ...]:
    """Every file that the lab adds to the packages; the keys are the texts of OpenSSH key files."""
    menu = () if kind == "systemd-boot" else (ImageFile(path="/etc/default/grub", text=DEFAULT_GRUB),)
    compute = ImageFile(path="/etc/systemd/system/nova-compute.service", text=NOVA_COMPUTE_UNIT)
    in_chroot = IN_CHROOT + (DISABLE_NOVA_COMPUTE if kind == "debian13" else "")
    masks = (ImageFile(path=f"/etc/systemd/system/{unit}", link="/dev/null") for unit in MASKED_UNITS)
    return (
        ImageFile(path="/etc/hostname", text=f"{HOST_NAME}\n"),
        ImageFile(path="/etc/hosts", text=f"127.0.0.1 localhost\n127.0.1.1 {HOST_NAME}\n"),
        ImageFile(path="/etc/fstab", text=f"LABEL={ROOT_LABEL} / ext4 errors=remount-ro 0 0\n"),
        ImageFile(
            path="/etc/systemd/network/10-lab.network",
            text="[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nLinkLocalAddressing=no\n",
        ),
        *menu,
        *([compute] if kind == "compute" else []),
        *_initramfs_files(kind),
        ImageFile(path="/etc/ssh/ssh_host_ed25519_key", text=host_key, mode=0o600),
        ImageFile(path="/etc/ssh/ssh_host_ed25519_key.pub", text=host_key_public),
        ImageFile(path="/root/.ssh/authorized_keys", text=login_key_public, mode=0o600),
        ImageFile(path=f"/home/{OPERATOR}/.ssh/authorized_keys", text=login_key_public, mode=0o600, owner=1000),
        ImageFile(path=f"/etc/sudoers.d/{OPERATOR}", text=f"{OPERATOR} ALL=(ALL) NOPASSWD: ALL\n", mode=0o440),
        ImageFile(path="/srv/lab/guest-init", text=GUEST_INIT, mode=0o755),
        ImageFile(path="/srv/lab/make-guest-initramfs", text=MAKE_GUEST_INITRAMFS, mode=0o755),
        ImageFile(path="/srv/lab/in-chroot", text=in_chroot, mode=0o755),
        ImageFile(path="/srv/lab/on-first-boot", text=_on_first_boot(kind), mode=0o755),
        *masks,
    )

"""Mishaps in the middle of prepare.yml: the host boots, the message says what to do, and a next run ends the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .commands import gpustack_host
from .conftest import Lab
from .machine import Machine
from .observe import disk_state
from .playbooks import Run, play
from .test_addresses import configuration
from .test_prepare import assert_prepared, assert_untouched
from .topology import Shape

COMMAND = "Run a command"
MOVE_BOOT = """\
set -eu
mkfs.ext4 -q -L boot /dev/vdc
umount /boot/efi
mount /dev/vdc /mnt
cp -a /boot/. /mnt
umount /mnt
rm -r /boot/*
mount /dev/vdc /boot
sed -i '/boot.efi/i LABEL=boot /boot ext4 defaults 0 2' /etc/fstab
mount /boot/efi
grub-install --target=x86_64-efi --efi-directory=/boot/efi --removable --no-nvram
update-grub
sync
"""
HOLD_DPKG = """\
import fcntl, os, subprocess, sys
code = (
    "import fcntl, os, time; fcntl.lockf(os.open('/var/lib/dpkg/lock-frontend', os.O_RDWR), fcntl.LOCK_EX); "
    "print('held', flush=True); time.sleep(3600)"
)
child = subprocess.Popen(
    [sys.executable, "-c", code],
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
)
assert child.stdout.readline() == b"held\\n"
print(child.pid)
"""
BROKEN_HOOK = """\
#!/bin/sh
[ "$1" = prereqs ] && exit 0
echo "E: broken: this machine has no such thing" >&2
exit 1
"""
FILL_BOOT = "head -c $(($(df --output=avail -k /boot | tail -n1) - 4096))K /dev/zero >/boot/filler; sync"
HOOK = "/etc/initramfs-tools/hooks/broken"


def prepare(host: Machine, *arguments: str) -> Run:
    return play(host, "prepare.yml", "-e", "gpustack_reboot=true", *arguments)


def fails(host: Machine, *messages: str, arguments: tuple[str, ...] = ()) -> None:
    """A run that fails before any reboot, with these words and the way on."""
    boots, menu = host.boots(), host.ssh(["sha256sum", "/boot/grub/grub.cfg"])
    run = prepare(host, *arguments)
    assert run.code == 2, run.output
    for message in (*messages, "un the playbook again"):
        assert message in run.output, run.output
    assert host.boots() == boots
    assert host.ssh(["sha256sum", "/boot/grub/grub.cfg"]) == menu


@contextmanager
def meanwhile(host: Machine, task: str, action: Callable[[], None]) -> Iterator[None]:
    """Does something while a playbook is at a task."""
    log = host.directory / "ansible.log"
    log.touch()
    start = len(log.read_text())

    def wait() -> None:
        end = time.monotonic() + 600
        while time.monotonic() < end:
            if f"TASK [nova_gpustack.passthrough.gpustack : {task}]" in log.read_text()[start:]:
                time.sleep(10)  # into its work
                action()
                return
            time.sleep(0.5)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def boot_files(host: Machine) -> str:
    """Names and contents of all of /boot, which has a file system of its own here."""
    return host.ssh(["find", "/boot", "-xdev", "-type", "f", "-exec", "sha256sum", "{}", "+"])


def test_a_host_in_trouble(lab: Lab) -> None:
    with lab.booted("mishaps", Shape(), extra_mebibytes=64) as host:
        host.ssh(["sh", "-s"], stdin=MOVE_BOOT)
        host.reboot()
        assert host.ssh(["findmnt", "-no", "SOURCE", "/boot"]).strip() == "/dev/vdc"
        assert_untouched(host)
        as_installed = configuration(host)

        lab.report("--check, in all ways")
        before, images = disk_state(host), boot_files(host)
        for arguments in ((), ("-e", "gpustack_trial=true"), ("-e", "gpustack_live=true", "-e", "gpustack_adopt=true")):
            run = prepare(host, "--check", "--diff", *arguments)
            assert run.code == 0, run.output
            assert run.count("changed") > 0, run.output
        run = play(host, "undo.yml", "--check")
        assert run.code == 0, run.output
        assert disk_state(host) == before
        assert configuration(host) == as_installed
        assert boot_files(host) == images

        lab.report("/etc is read-only")
        host.ssh(["sh", "-c", "mount --bind /etc /etc && mount -o remount,bind,ro /etc"])
        fails(host, "Read-only file system", "mount that file system writable")
        host.ssh(["umount", "/etc"])
        assert configuration(host) == as_installed

        lab.report("dpkg is at work")
        process = host.ssh(["python3", "-"], stdin=HOLD_DPKG).strip()
        fails(
            host,
            f"lock-frontend is locked by process {process}",
            "wait until it is done",
            arguments=("-e", "gpustack_lock_timeout=3"),
        )
        host.ssh(["kill", process])
        assert boot_files(host) == images

        lab.report("the initramfs tool fails")
        host.ssh(["sh", "-c", f"cat >{HOOK} && chmod +x {HOOK}"], stdin=BROKEN_HOOK)
        fails(host, "this machine has no such thing", "update-initramfs")
        host.ssh(["rm", HOOK])
        assert boot_files(host) == images

        lab.report("/boot is full")
        fill = (
            "rest=$(($(df --output=avail -k /boot | tail -n1) - 4096)); head -c ${rest}K /dev/zero >/boot/filler; sync"
        )
        host.ssh(["sh", "-c", fill])
        fails(host, "No space left on device", "A disk is full")
        host.ssh(["rm", "/boot/filler"])
        assert boot_files(host) == images
        host.ssh(["sh", "-c", FILL_BOOT])

        lab.report("a reboot as it is")
        host.reboot()
        assert host.ssh(["systemctl", "--failed", "--plain", "--no-legend"]).strip() == ""
        assert "intel_iommu" not in host.ssh(["cat", "/proc/cmdline"])
        host.ssh(["rm", "/boot/filler"])

        lab.report("SSH is cut while the initramfs is made")
        with meanwhile(host, COMMAND, lambda: cut_sessions(host)):
            fails(host, "broke while 'update-initramfs", "waits for that command")

        lab.report("gpustack host apply to its end")
        boots = host.boots()
        run = gpustack_host(host, "apply", "--reboot", "--yes")
        assert run.code == 0, run.output
        assert "lab1: done" in run.output
        host.wait_ssh()
        assert host.boots() == boots + 1
        assert_prepared(host)
        run = gpustack_host(host, "verify")
        assert run.code == 0, run.output


def cut_sessions(host: Machine) -> None:
    """Ends what serves the operator's connections, and not the commands that they have started."""
    host.ssh(["pkill", "-KILL", "-f", "^sshd: deploy"])


def test_the_cable_is_out_for_a_while(lab: Lab) -> None:
    with lab.booted("cable", Shape()) as host:

        def pull() -> None:
            with host.cable_pulled():
                time.sleep(20)

        lab.report("prepare.yml without a reboot, and the cable out for 20 s")
        with meanwhile(host, COMMAND, pull):
            run = play(host, "prepare.yml")
        assert run.code == 0, run.output
        assert "needs a reboot" in run.output
        host.reboot()
        assert_prepared(host)

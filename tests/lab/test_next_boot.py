"""The next boot of a plan is the boot of the host. Refused plans would lose the host: the same steps by hand do."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpustack.hosts.facts.store import load_snapshot
from gpustack.prepare.host.next_boot.model import kernel_words
from gpustack.prepare.host.own_files import GRUB
from gpustack.prepare.host.undo import plan_undo

from . import recipe, second_kernel
from .commands import SSH_OPTIONS, gpustack, gpustack_host
from .conftest import Lab
from .errors import LabError
from .machine import BOOT_TIMEOUT, Machine
from .observe import disk_state
from .playbooks import Run, spec
from .test_health import cards
from .test_prepare import assert_prepared, assert_untouched
from .test_trial import PANIC, PANIC_UNIT, broken_by
from .topology import Shape

MENU = "/boot/grub/grub.cfg"
DEFAULTS = "/etc/default/grub"
CUSTOM = "/etc/grub.d/40_custom"
OVERLAY_INIT = "/usr/local/sbin/lab-overlay"
# The arguments of gpustack's drop-in, by hand and without its checks.
DROP_IN = f"""\
set -eu
mkdir -p {GRUB.rpartition("/")[0]}
echo 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT intel_iommu=on iommu=pt"' >{GRUB}
update-grub
sync
"""
NO_RESPONSE_SECONDS = 60.0

# The entry boots the first kernel with its usual arguments, as such entries do.
PINNED = f"""\
set -eu
{{ echo "menuentry 'pinned' --id pinned {{"; grep -m1 -E '^\\s*search .*--fs-uuid' {MENU}
grep -m1 -E '^\\s*linux\\s' {MENU}; grep -m1 -E '^\\s*initrd\\s' {MENU}; echo '}}'; }} >>{CUSTOM}
sed -i 's/^GRUB_DEFAULT=.*/GRUB_DEFAULT=pinned/' {DEFAULTS}
update-grub
"""
# A system whose changes are in memory, as Ubuntu's overlayroot makes it.
OVERLAY = f"""\
set -eu
cat >{OVERLAY_INIT} <<'END'
#!/bin/sh
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
modprobe overlay
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
for directory in proc sys dev run; do mount --move /$directory /mnt/root/$directory; done
cd /mnt/root
pivot_root . mnt
exec chroot . /sbin/init
END
chmod +x {OVERLAY_INIT}
sed -i 's|^GRUB_CMDLINE_LINUX_DEFAULT="quiet|& init={OVERLAY_INIT}|' {DEFAULTS}
update-grub
sync
"""


@dataclass(frozen=True, kw_only=True)
class Boot:
    """A kernel's release, and its command line without the words of the boot loader."""

    release: str | None
    words: list[str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan: the codes of its errors, and the next boot after it."""

    errors: set[str]
    boot: Boot
    output: str


@pytest.fixture
def kept(lab: Lab) -> Iterator[Path]:
    """A directory for the state of a host that the next boot loses."""
    directory = lab.directory / "kept"
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def booted(host: Machine) -> Boot:
    words = [word.text for word in kernel_words(host.ssh(["cat", "/proc/cmdline"]))]
    return Boot(release=host.ssh(["uname", "-r"]).strip(), words=words)


def plan(host: Machine, *options: str) -> Plan:
    """What `gpustack host plan` shows; it must refuse if it has errors."""
    run = gpustack_host(host, "plan", "-f", "json", *options)
    document, _ = json.JSONDecoder().raw_decode(run.output[run.output.index("[\n") :])
    after = document[0]["next_boot"]["after"]
    errors = {finding["code"] for finding in document[0]["findings"] if finding["severity"] == "error"}
    assert run.code == (13 if errors else 0), run.output
    boot = Boot(release=after["kernel"], words=[word["word"] for word in after["words"] or ()])
    return Plan(errors=errors, boot=boot, output=run.output)


def predicted_undo(host: Machine) -> Boot:
    """The next boot after an undo."""
    arguments = ["scan", recipe.HOST_NAME, *SSH_OPTIONS, "--save", "facts.json"]
    run = gpustack(host, *arguments, spec_text=spec())
    assert run.code == 0, run.output
    (facts,) = load_snapshot(host.directory / "facts.json")
    change = plan_undo(facts).next_boot
    assert change is not None
    return Boot(release=change.after.kernel, words=[word.text for word in change.after.words or ()])


def apply(host: Machine, command: str, *options: str) -> Run:
    """A run of `gpustack host apply` or `undo` with a reboot, after which the host answers."""
    run = gpustack_host(host, command, "--reboot", "--yes", *options)
    host.wait_ssh()
    return run


def assert_verified(host: Machine) -> None:
    assert_prepared(host)
    run = gpustack_host(host, "verify")
    assert run.code == 0, run.output


def replace(host: Machine, path: str, old: str, new: str) -> None:
    """Replace a text in a file of the host, without a change of anything else."""
    text = host.ssh(["cat", path])
    assert old in text
    host.ssh(["tee", path], stdin=text.replace(old, new))


def assert_lost(host: Machine) -> None:
    """The host reboots to its login prompt, and does not answer over SSH."""

    def prompts() -> int:
        return host.serial_log.read_bytes().count(b"lab1 login:")

    boot, before, end = host.wait_ssh(), prompts(), time.monotonic() + BOOT_TIMEOUT
    host.ssh(["systemctl", "--no-block", "reboot"])
    while prompts() == before:
        if time.monotonic() > end:
            raise host.error("no login prompt")
        time.sleep(1)
    with pytest.raises(LabError, match="did not answer on SSH"):
        host.wait_ssh(NO_RESPONSE_SECONDS, other_than_boot=boot)


@contextmanager
def changed(host: Machine, path: str, script: str) -> Iterator[None]:
    """A host on which a script ran, and whose file is restored afterwards."""
    text = host.ssh(["cat", path])
    host.ssh(["sh", "-s"], stdin=script)
    yield
    host.ssh(["tee", path], stdin=text)


def assert_refused(host: Machine, code: str, *texts: str, beside: Set[str] = frozenset(), trial: bool = False) -> Plan:
    """A plan with this error, whose text has these parts, and no other one than those of `beside`."""
    refused = plan(host, *(("--trial",) if trial else ()))
    assert refused.errors == {code, *beside}, refused.output
    for text in texts:
        assert text in refused.output, refused.output
    return refused


def test_hosts_whose_next_boot_is_another_are_refused(lab: Lab) -> None:
    with lab.booted("refused", Shape()) as host:
        assert_untouched(host)
        assert plan(host).errors == set()

        lab.report("a pending edit")
        with changed(host, DEFAULTS, f"sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"quiet/& apparmor=0/' {DEFAULTS}"):
            assert_refused(host, "GPU234", f"{DEFAULTS}:10", "+apparmor=0")
            before = disk_state(host)
            run = gpustack_host(host, "apply", "--reboot", "--yes")
            assert run.code == 13, run.output
            assert disk_state(host) == before
            # The menu that an update-grub without the check would write.
            assert "apparmor=0" in host.ssh(["grub-mkconfig"])

        lab.report("/boot is read-only")
        host.ssh(["sh", "-c", "mount --bind /boot /boot && mount -o remount,bind,ro /boot"])
        assert_refused(host, "GPU237", "/boot is on a read-only ext4", "mount -o remount,rw /boot")
        host.ssh(["umount", "/boot"])

        lab.report("setpci switches off a port's ACS")
        first, second = cards(host)
        host.ssh(["setpci", "-s", first.port, "ECAP_ACS+6.w=0"])
        assert_refused(host, "GPU243", first.address, first.port)
        for command in ("scan", "health", "topology"):
            run = gpustack(host, command, recipe.HOST_NAME, *SSH_OPTIONS, spec_text=spec())
            assert "GPU243" in run.output, run.output
            assert second.port not in run.output.partition("GPU243")[2].partition("\n")[0]

        lab.report("an entry of 40_custom as the default; the same by hand, with a reboot")
        with changed(host, CUSTOM, ""), changed(host, DEFAULTS, PINNED):
            refused = assert_refused(host, "GPU236", "GRUB_DEFAULT=pinned", "intel_iommu=on", beside={"GPU243"})
            host.ssh(["sh", "-s"], stdin=DROP_IN)
            host.reboot()
            assert booted(host) == refused.boot
            assert "intel_iommu=on" not in refused.boot.words
        host.ssh(["rm", GRUB])
        host.ssh(["update-grub"])
        assert plan(host).errors == set()

        lab.report("a reboot, into a root whose changes are in memory")
        host.ssh(["sh", "-s"], stdin=OVERLAY)
        host.reboot()
        assert host.ssh(["findmnt", "-no", "FSTYPE", "/"]).strip() == "overlay"
        assert_refused(host, "GPU237", "an overlay, whose changes the boot loader does not read")
        lab.report("the same by hand, with a reboot: the file is lost")
        host.ssh(["sh", "-s"], stdin=DROP_IN.replace("update-grub\n", ""))
        host.reboot()
        assert host.ssh(["sh", "-c", f"cat {GRUB} || true"]) == ""


def test_an_argument_only_in_the_menu(lab: Lab, kept: Path) -> None:
    with lab.booted("menu", Shape()) as host:
        lab.report("a network card with a name that only the menu gives, and a reboot")
        replace(host, "/etc/systemd/network/10-lab.network", "Name=e*", "Name=eth0")
        replace(host, MENU, " quiet", " net.ifnames=0 quiet")
        host.ssh(["sync"])
        host.reboot()
        original = booted(host)
        assert "net.ifnames=0" in original.words
        for trial in (False, True):
            assert_refused(host, "GPU233", f"only in {MENU}", "-net.ifnames=0", trial=trial)
        host.save(kept)

        lab.report("the same by hand")
        host.ssh(["sh", "-s"], stdin=DROP_IN)
        assert "net.ifnames=0" not in host.ssh(["cat", MENU])
        assert_lost(host)

    with lab.machine("menu-again", Shape(), state=kept) as host:
        host.resume()
        lab.report("the remedy; a trial in which the kernel panics")
        replace(host, DEFAULTS, 'DEFAULT="quiet"', 'DEFAULT="net.ifnames=0 quiet"')
        assert plan(host, "--trial").errors == set()
        boots, host.panics = host.boots(), 1
        with broken_by(host, PANIC, PANIC_UNIT):
            run = apply(host, "apply", "--trial")
            assert run.code != 0, run.output
            assert host.panicked() == 1
            assert host.boots() == boots + 2
            assert booted(host) == original

        lab.report("gpustack host apply, with a reboot")
        accepted = plan(host)
        assert accepted.errors == set(), accepted.output
        run = apply(host, "apply")
        assert run.code == 0, run.output
        assert booted(host) == accepted.boot
        assert {"net.ifnames=0", "intel_iommu=on"} <= set(accepted.boot.words)
        assert_verified(host)

        lab.report("gpustack host undo, with a reboot")
        predicted = predicted_undo(host)
        assert predicted == original
        run = apply(host, "undo")
        assert run.code == 0, run.output
        assert booted(host) == predicted
        assert_untouched(host)


def test_another_kernel_boots(lab: Lab, kept: Path) -> None:
    files = second_kernel.archive(lab.report)
    with lab.booted("kernel", Shape()) as host:
        lab.report("a newer kernel without the module of the network card")
        old, release = booted(host), second_kernel.unpack(host, files)
        module = f"/lib/modules/{release}/kernel/drivers/net/virtio_net.ko"
        commands = (
            f"mv {module} /root",
            f"depmod {release}",
            f"update-initramfs -c -k {release}",
            "update-grub",
            "sync",
        )
        for command in commands:
            host.ssh(shlex.split(command), timeout=900)
        assert_refused(host, "GPU241", release, "virtio_net")
        host.save(kept)

        lab.report("a reboot")
        assert_lost(host)

    with lab.machine("kernel-again", Shape(), state=kept) as host:
        host.resume()
        lab.report("the remedy; gpustack host apply, with a reboot")
        for command in (f"mv /root/virtio_net.ko {module}", f"depmod {release}"):
            host.ssh(shlex.split(command))
        accepted = plan(host)
        assert accepted.errors == set(), accepted.output
        assert accepted.boot.release == release != old.release
        run = apply(host, "apply")
        assert booted(host) == accepted.boot
        assert run.code == 0, run.output
        assert_verified(host)

"""A trial boot: new kernel arguments hold for one boot, and for good only when the host has come back and is right.

The arguments stand in a menu entry of their own, the last, which GRUB's environment names for the next boot only:
GRUB takes that name away before it starts the kernel (``next_entry`` in the ``grub.cfg`` that ``grub-mkconfig``
writes). So whatever ends the trial, the boot after it is the old one. Four things end it:

* a panic: the kernel reboots (``panic=``), and so does the initramfs in place of its shell (initramfs-tools(7),
  dracut.cmdline(7));
* a kernel that hangs: systemd has the hardware's watchdog bite, where there is one (``systemd.watchdog_sec=``);
* a host that runs but that nobody confirms in time: a unit of systemd's reboots it;
* a verification that fails: the playbook reboots it.

The files in ``/etc`` and the initramfs are the new ones in both boots: what is tried is the command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

from gpustack.codes import Code
from gpustack.facts.model import BootEnvironment, Host
from gpustack.findings import Finding, finding
from gpustack.host.decide.desired import Desired
from gpustack.host.own_files import GRUB, TRIAL_ENTRY, TRIAL_UNIT, OwnedFile
from gpustack.host.render import render_trial
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.grub import DEFAULTS, read_defaults

ENTRY = "gpustack-trial"
"""The trial entry's id in GRUB's menu."""
TITLE = "gpustack: new kernel arguments, tried once"
MARKER = "gpustack.trial"
"""The argument by which a trial boot is known. The kernel passes over a word with a dot that no module claims."""
_PANIC_SECONDS = 15
_WATCHDOG_SECONDS = 60
# GRUB writes its environment without the file system's help, in place (00_header of Ubuntu's GRUB, check_writable).
_WRITABLE = frozenset({"ext2", "ext3", "ext4", "xfs", "vfat"})
# How long GRUB shows its menu; the second is Ubuntu's, after a boot that did not get as far as its services.
_TIMEOUTS = ("GRUB_TIMEOUT", "GRUB_RECORDFAIL_TIMEOUT")
_DEVICES = {
    "lvm": "a logical volume",
    "raid": "software RAID",
    "crypt": "an encrypted device",
    "mapped": "a device mapper target",
    None: "a block device that the facts don't name",
}


class TrialDocument(TypedDict, total=False):
    """A trial as plain data: its entry, what marks its boot, and the commands around it."""

    entry: str
    marker: str
    seconds: int
    select: list[str]
    confirm: list[str]
    forget: list[str]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial that a plan asks for.

    :ivar arguments: what the trial entry has beside the line that is tried.
    :ivar seconds: how long after the start of the system the host may take to be confirmed.
    """

    arguments: tuple[str, ...]
    seconds: int

    def to_dict(self) -> TrialDocument:
        """As plain data: what the playbooks need for it."""
        return {
            "entry": ENTRY,
            "marker": MARKER,
            "seconds": self.seconds,
            "select": ["grub-reboot", ENTRY],
            "confirm": ["systemctl", "stop", TRIAL_UNIT.rpartition("/")[2]],
            "forget": ["grub-editenv", "-", "unset", "next_entry"],
        }


def trial(seconds: int) -> Trial:
    """The trial with everything that ends it."""
    unit = TRIAL_UNIT.rpartition("/")[2]
    return Trial(
        seconds=seconds,
        arguments=(
            MARKER,
            f"panic={_PANIC_SECONDS}",
            "rd.shell=0",
            "rd.emergency=reboot",
            f"systemd.wants={unit}",
            f"systemd.watchdog_sec={_WATCHDOG_SECONDS}",
        ),
    )


def is_running(host: Host) -> bool:
    """Whether the host's present boot is a trial; once it has been made permanent, the files of the trial are gone."""
    line = host.kernel.command_line
    return TRIAL_ENTRY in host.files and line is not None and CommandLine(text=line).has(MARKER)


def files(desired: Desired, wanted: Trial) -> dict[str, OwnedFile]:
    """The files of a trial, by path; none when the line to try is not known, which the plan refuses anyway."""
    if desired.next_line is None:
        return {}
    return render_trial(
        line=desired.next_line.text,
        extra=wanted.arguments,
        entry=ENTRY,
        title=TITLE,
        marker=MARKER,
        seconds=wanted.seconds,
    )


def has_entry(host: Host, desired: Desired, wanted: Trial) -> bool:
    """Whether the menu has the trial entry, with the arguments that are to be tried."""
    for entry in host.boot.entries:
        if entry.title == TITLE and desired.next_line is not None:
            line = CommandLine(text=entry.arguments)
            tried = (*(argument.text for argument in desired.next_line.arguments), *wanted.arguments)
            return all(line.has(argument) for argument in tried)
    return False


def findings(host: Host) -> Iterator[Finding]:
    """Why a trial is not possible on this host; nothing when it is."""
    environment = host.boot.environment
    if host.boot.loader != "grub" or host.boot.bls:
        yield finding(Code.TRIAL_BOOT_LOADER, place=host.hostname)
    elif environment is None:
        yield finding(Code.TRIAL_ENVIRONMENT_UNKNOWN, place=host.hostname, what="GRUB's environment was not read")
    else:
        yield from _unusable(f"{host.hostname} {environment.path}", environment)
        defaults = read_defaults({path: file.text for path, file in host.files.items() if path != GRUB})
        place = f"{host.hostname} {DEFAULTS}"
        for name in _TIMEOUTS:
            if (defaults.text(name) or "").strip().startswith("-"):
                yield finding(Code.TRIAL_MENU_WAITS, place=place, name=name)
        if why := _other_default(defaults.text("GRUB_DEFAULT"), environment.saved_entry):
            yield finding(Code.TRIAL_DEFAULT_ENTRY, place=place, why=why)


def _unusable(place: str, environment: BootEnvironment) -> Iterator[Finding]:
    """Why GRUB can't start the trial entry once."""
    if not environment.exists:
        yield finding(Code.TRIAL_ENVIRONMENT_MISSING, place=place, path=environment.path)
    if not environment.read:
        yield finding(Code.TRIAL_ENVIRONMENT_NOT_IN_MENU, place=place)
    if environment.filesystem is None:
        yield finding(Code.TRIAL_ENVIRONMENT_UNKNOWN, place=place, what="the file system of this file is unknown")
    elif environment.filesystem not in _WRITABLE:
        yield finding(Code.TRIAL_ENVIRONMENT_UNWRITABLE, place=place, where=environment.filesystem)
    elif environment.device != "disk":
        yield finding(Code.TRIAL_ENVIRONMENT_UNWRITABLE, place=place, where=_DEVICES[environment.device])
    if environment.next_entry not in (None, ENTRY):
        yield finding(Code.TRIAL_NEXT_BOOT_TAKEN, place=place, entry=environment.next_entry)


def _other_default(chosen: str | None, saved: str | None) -> str:
    """Which entry GRUB boots, unless it is the first: the trial starts that one's kernel, so another would be tried."""
    if chosen is None:
        return "GRUB_DEFAULT can't be evaluated"
    if chosen == "saved":
        return "" if saved in (None, "0") else f"GRUB boots the saved entry {saved}"
    return "" if chosen in ("", "0") else f"GRUB_DEFAULT is {chosen}"

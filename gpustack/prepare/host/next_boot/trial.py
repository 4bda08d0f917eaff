"""A trial boot: new kernel arguments apply to one boot, and become permanent after the host is verified.

A separate menu entry, the last one, has the arguments. GRUB's environment selects it for the next boot only: GRUB
clears ``next_entry`` before it starts the kernel (``grub.cfg`` of ``grub-mkconfig``). So the boot after the trial
always has the old arguments. Four events end a trial:

* panic: the kernel reboots (``panic=``); the initramfs reboots instead of starting a shell (initramfs-tools(7),
  dracut.cmdline(7));
* hang: the hardware watchdog, if there is one, resets the host (``systemd.watchdog_sec=``);
* no confirmation in time: a systemd unit reboots the host;
* failed verification: the playbook reboots the host.

Files in ``/etc`` and the initramfs are new in both boots: the trial covers only the command line.
"""

from collections.abc import Iterator
from typing import TypedDict

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.boot_model import BootEnvironment
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.grub import DEFAULTS, read_defaults
from gpustack.prepare.host.desired import Desired
from gpustack.prepare.host.next_boot.choice import by_default
from gpustack.prepare.host.own_files import GRUB, TRIAL_ENTRY, TRIAL_UNIT, OwnedFile
from gpustack.prepare.host.render import file

ENTRY = "gpustack-trial"
"""The trial entry's id in GRUB's menu."""
TITLE = "gpustack: new kernel arguments, tried once"
MARKER = "gpustack.trial"
"""The argument that identifies a trial boot. The kernel ignores arguments with a dot that belong to no module."""
ARGUMENTS = (
    *(MARKER, "panic=15", "rd.shell=0", "rd.emergency=reboot"),
    *(f"systemd.wants={TRIAL_UNIT.rpartition('/')[2]}", "systemd.watchdog_sec=60"),
)
"""The arguments of the trial entry in addition to the command line to try: they end it at panic, hang and timeout."""
# GRUB overwrites the blocks of its environment in place (00_header of Ubuntu's GRUB, check_writable).
_WRITABLE = frozenset({"ext2", "ext3", "ext4", "xfs", "vfat"})
# Timeouts of GRUB's menu; the second applies on Ubuntu after a failed boot.
_TIMEOUTS = ("GRUB_TIMEOUT", "GRUB_RECORDFAIL_TIMEOUT")
_DEVICES = {
    "lvm": "a logical volume",
    "raid": "software RAID",
    "crypt": "an encrypted device",
    "mapped": "a device mapper target",
    None: "a block device that the facts don't name",
}


class TrialDocument(TypedDict, total=False):
    """A trial as plain data: its menu entry, its marker argument, its time limit and its commands."""

    entry: str
    marker: str
    seconds: int
    select: list[str]
    confirm: list[str]
    forget: list[str]


def document(seconds: int) -> TrialDocument:
    """A trial as plain data, for the playbooks.

    :param seconds: the time after system start within which the host must be confirmed.
    """
    return {
        "entry": ENTRY,
        "marker": MARKER,
        "seconds": seconds,
        "select": ["grub-reboot", ENTRY],
        "confirm": ["systemctl", "stop", TRIAL_UNIT.rpartition("/")[2]],
        "forget": ["grub-editenv", "-", "unset", "next_entry"],
    }


def is_running(host: Host) -> bool:
    """Whether the current boot is a trial. After it is made permanent, the files of the trial are gone."""
    line = host.kernel.command_line
    return TRIAL_ENTRY in host.files and line is not None and CommandLine(text=line).has(MARKER)


def files(line: str, seconds: int) -> dict[str, OwnedFile]:
    """The files of a trial, by path.

    :param line: the kernel's command line to try.
    """
    why, entry = "the new kernel arguments, to be tried once", "trial-entry.sh.j2"
    unit = file("ends the trial boot when nobody confirms it", "trial-unit.service.j2", marker=MARKER, seconds=seconds)
    script = file(why, entry, "0755", line=line, extra=ARGUMENTS, entry=ENTRY, title=TITLE)
    return {TRIAL_UNIT: unit, TRIAL_ENTRY: script}


def has_entry(host: Host, desired: Desired) -> bool:
    """Whether the menu has the trial entry, with all arguments to try."""
    for entry in host.boot.entries:
        if entry.title == TITLE and desired.next_line is not None:
            line = CommandLine(text=entry.arguments)
            tried = (*(argument.text for argument in desired.next_line.arguments), *ARGUMENTS)
            return all(line.has(argument) for argument in tried)
    return False


def findings(host: Host) -> Iterator[Finding]:
    """Findings about reasons why a trial is not possible on this host; empty if it is."""
    environment = host.boot.environment
    if host.boot.loader != "grub" or host.boot.bls:
        yield finding(Code.TRIAL_BOOT_LOADER, place=host.hostname)
    elif environment is None:
        yield finding(Code.TRIAL_ENVIRONMENT_UNKNOWN, place=host.hostname, what="GRUB's environment was not read")
    else:
        yield from _unusable(host.at(environment.path), environment)
        defaults = read_defaults({path: file.text for path, file in host.files.items() if path != GRUB})
        place = host.at(DEFAULTS)
        for name in _TIMEOUTS:
            if (defaults.text(name) or "").strip().startswith("-"):
                yield finding(Code.TRIAL_MENU_WAITS, place=place, name=name)
        if why := _other_default(host, defaults.text("GRUB_DEFAULT")):
            yield finding(Code.TRIAL_DEFAULT_ENTRY, place=place, why=why)


def _unusable(place: str, environment: BootEnvironment) -> Iterator[Finding]:
    """Findings about reasons why GRUB can't boot the trial entry exactly once."""
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


def _other_default(host: Host, wanted: str | None) -> str:
    """Why GRUB does not boot the first entry by default; empty if it does. The trial boots the first entry's kernel."""
    if wanted is None:
        return "GRUB_DEFAULT can't be evaluated"
    chosen = by_default(host, host.boot.entries, (), wanted or "0")
    return "" if chosen.entry is not None and chosen.entry == host.boot.entries[0] else chosen.why

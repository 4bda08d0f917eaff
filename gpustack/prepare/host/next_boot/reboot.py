"""The reasons for a reboot, and the detection of reboots without effect."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Reboot, TrialReboot, WriteFile
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.drivers import BY_ID, is_held
from gpustack.linux.grub import paths as grub_paths
from gpustack.prepare.host.decide import virtual_functions
from gpustack.prepare.host.decide.addresses import kept_at_boot
from gpustack.prepare.host.desired import Desired, withdrawn
from gpustack.prepare.host.foreign_config import elsewhere
from gpustack.prepare.host.next_boot.rebuild import lacking
from gpustack.prepare.host.own_files import AGAIN, MARK, MODPROBE, OWNED, ids_of
from gpustack.prepare.host.tools import has_systemd_boot

_AGAIN = (
    f"{MARK}\n#\n# The host had booted with everything in place and was not right: one more boot was asked for.\n"
    "# The boot that was not right began {} seconds after 1970.\n"
)
"""The content of the note; it contains the boot time, so that it differs and is rewritten at each boot."""


def reboot(reasons: tuple[str, ...], seconds: int | None = None) -> Reboot:
    """The reboot for these reasons, into a trial if it has a time limit."""
    why = "; ".join(reasons)
    return Reboot(why=why) if seconds is None else TrialReboot(why=why, seconds=seconds)


def reasons(host: Host, desired: Desired) -> tuple[str, ...]:
    """The differences of the running host from the desired state that require a reboot; empty if there are none."""
    return (
        *argument_reasons(host, desired),
        *_driver_reasons(host, desired),
        *_left_over(host, desired),
        *virtual_functions.missing(host, desired.targets.shared),
        *virtual_functions.surplus(host, desired.targets.shared),
    )


def argument_reasons(host: Host, desired: Desired) -> Iterator[str]:
    """The missing and the surplus arguments of the running kernel."""
    if host.kernel.command_line is None:
        return
    line = CommandLine(text=host.kernel.command_line)
    for argument in lacking(line, desired):
        yield f"the running kernel was started without {argument}"
    for argument in withdrawn(line, desired.next_line):
        yield f"the running kernel was started with {argument}, which is no longer wanted"


def _driver_reasons(host: Host, desired: Desired) -> Iterator[str]:
    elsewhere: dict[tuple[str, str], list[str]] = {}
    for address, (function, driver) in sorted(desired.targets.functions.items()):
        if not is_held(function.driver, driver):
            elsewhere.setdefault((function.driver or "no driver", driver), []).append(address)
    for (current, driver), addresses in elsewhere.items():
        verb = "is" if len(addresses) == 1 else "are"
        yield f"{', '.join(addresses)} {verb} on {current} instead of {driver}"


def _left_over(host: Host, desired: Desired) -> Iterator[str]:
    """Functions that gpustack bound at an earlier boot, but that are no longer targets.

    After gpustack's modprobe.d file is rewritten, its earlier ids are unknown. Until the next boot, a function on
    vfio-pci or pci-stub is assumed to be one of them if neither known ids nor a ``driver_override`` explain it.
    """
    wanted = desired.targets.functions
    for address, driver in sorted(kept_at_boot(host).items()):
        function = host.functions.get(address)
        if function is not None and address not in wanted and function.driver == function.driver_override == driver:
            yield f"{address} is on {driver}, which is no longer wanted"
    if (file := host.files.get(MODPROBE)) is None:
        return
    booted = host.kernel.booted_at
    is_rewritten = booted is None or (file.mtime_ns or 0) > booted * 1_000_000_000
    before = ids_of(host)
    by_address = {device.address for device in desired.binding.by_address}
    wanted_ids = {f.ids for address, (f, _) in wanted.items() if address not in by_address}
    others = tuple(elsewhere(host).ids())
    for function in sorted(host.pci, key=lambda f: f.bdf):
        if function.address in wanted or function.driver not in BY_ID or function.driver_override:
            continue
        if function.physical_function is not None:  # gpustack binds none of them
            continue
        is_explained = function.ids in wanted_ids or any(foreign.binds(function) for foreign in others)
        if not is_explained and (is_rewritten or function.ids in before):
            yield f"{function.address} is on {function.driver}, which is no longer wanted"


def stuck(host: Host, desired: Desired, why: tuple[str, ...]) -> tuple[Finding, tuple[WriteFile, ...]] | None:
    """The finding if the last boot had the complete configuration, but the reasons ``why`` remain; None if not.

    After a power failure, this can happen once: a boot loader reads the file system without its journal, so it may have
    read the old menu and initramfs. One more boot is then requested. Further reboots would not help.

    :returns: also the note that one more boot was requested; nothing if it was requested before and did not help.
    """
    booted = host.kernel.booted_at
    if not why or booted is None or any(virtual_functions.surplus(host, desired.targets.shared)):
        return None  # the boot had files that created virtual functions, and the next one has not
    times: list[int | None] = [] if has_systemd_boot(host) else [host.boot.config_mtime]
    times += [host.files[path].mtime_ns for path in {*OWNED, *grub_paths(host.files)} if path in host.files]
    times += [
        kernel.initramfs_mtime_ns
        for kernel in host.boot.kernels
        if kernel.release == host.kernel.release and kernel.initramfs is not None
    ]
    known_times = [time for time in times if time is not None]
    if len(known_times) < len(times) or any(time > booted * 1_000_000_000 for time in known_times):
        return None
    mark = host.files.get(AGAIN)
    if mark is None or not max(known_times, default=0) <= (mark.mtime_ns or 0) <= booted * 1_000_000_000:
        before = None if mark is None else mark.text
        content, reason = _AGAIN.format(booted), "no other boot is asked for after this one"
        note = WriteFile(path=AGAIN, content=content, before=before, why=reason)
        return finding(Code.FIRST_BOOT_WITHOUT_EFFECT, place=host.hostname, reasons="; ".join(why)), (note,)
    return finding(Code.BOOTS_WITHOUT_EFFECT, place=host.hostname, reasons="; ".join(why)), ()

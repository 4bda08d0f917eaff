"""Why a host has to be rebooted, and when another reboot would change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustack.codes import Code
from gpustack.facts.model import Host
from gpustack.findings import Finding, finding
from gpustack.host.boot.rebuild import lacking, withdrawn
from gpustack.host.boot.tools import has_systemd_boot
from gpustack.host.decide.addresses import kept_at_boot
from gpustack.host.decide.desired import Desired
from gpustack.host.own_files import AGAIN, MARK, MODPROBE, OWNED
from gpustack.host.prior_setup.foreign_config import elsewhere
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.drivers import BY_ID, is_held
from gpustack.linux.grub import paths as grub_paths
from gpustack.linux.modprobe import parse
from gpustack.operations import WriteFile

_AGAIN = f"{MARK}\n#\n# The host had booted with everything in place and was not right: one more boot was asked for.\n"


def reasons(host: Host, desired: Desired) -> tuple[str, ...]:
    """Why the running host is not what it shall be; empty when no reboot is needed."""
    return (*argument_reasons(host, desired), *_driver_reasons(host, desired), *_left_over(host, desired))


def argument_reasons(host: Host, desired: Desired) -> Iterator[str]:
    """Which arguments the running kernel has not got, and which it should not have."""
    if host.kernel.command_line is None:
        return
    line = CommandLine(text=host.kernel.command_line)
    for argument in lacking(line, desired):
        yield f"the running kernel was started without {argument}"
    for argument in withdrawn(line, desired):
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
    """Functions that an earlier state of gpustack's own file has bound, and that are no targets any more.

    Once that file has been written anew, only the boot that is yet to come tells: until then a function that sits
    on vfio-pci, and that neither ids nor an override put there, is one of them.
    """
    wanted = desired.targets.functions
    for address, driver in sorted(kept_at_boot(host).items()):
        function = host.functions.get(address)
        if function is not None and address not in wanted and function.driver == function.driver_override == driver:
            yield f"{address} is on {driver}, which is no longer wanted"
    file = host.files.get(MODPROBE)
    if file is None:
        return
    booted = host.kernel.booted_at
    is_rewritten = booted is None or (file.mtime_ns or 0) > booted * 1_000_000_000
    before = ids_of(file.text)
    wanted_ids = {f.ids for address, (f, _) in wanted.items() if address not in _listed(desired)}
    others = frozenset().union(*(foreign.ids for foreign in elsewhere(host).ids()))
    for function in sorted(host.pci, key=lambda f: f.bdf):
        if function.address in wanted or function.driver not in BY_ID or function.driver_override:
            continue
        if function.ids in before - wanted_ids - others or (is_rewritten and function.ids not in wanted_ids | others):
            yield f"{function.address} is on {function.driver}, which is no longer wanted"


def ids_of(text: str) -> set[str]:
    """The ids that a text of gpustack's modprobe.d file hands to drivers."""
    return {
        device_id
        for statement in parse(text, MODPROBE)
        if statement.command == "options"
        for option in statement.words
        for device_id in option.removeprefix("ids=").split(",")
    }


def _listed(desired: Desired) -> frozenset[str]:
    """The addresses of the functions that are bound by address."""
    return frozenset(device.address for device in desired.binding.by_address)


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """A host that has booted with everything in place and is still not right.

    Once, that may come of a power cut: a boot loader reads a file system as it is on the disk, without what the kernel
    then takes out of its journal, and so may have read the menu and the initramfs as they were before. One more boot
    tells. Rebooting again and again would not help.

    :ivar files: what remembers that one more boot was asked for; empty when it was, and did not help.
    """

    finding: Finding
    files: tuple[WriteFile, ...] = ()


def stuck(host: Host, desired: Desired, why: tuple[str, ...]) -> Stuck | None:
    """Whether the last boot had everything that the plan can give it, and the host is not right all the same."""
    booted = host.kernel.booted_at
    if not why or booted is None:
        return None
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
        note = WriteFile(
            path=AGAIN, content=_again(host), before=before, why="no other boot is asked for after this one"
        )
        return Stuck(
            finding=finding(Code.FIRST_BOOT_WITHOUT_EFFECT, place=host.hostname, reasons="; ".join(why)), files=(note,)
        )
    return Stuck(finding=finding(Code.BOOTS_WITHOUT_EFFECT, place=host.hostname, reasons="; ".join(why)))


def _again(host: Host) -> str:
    """It differs from boot to boot, so that it is written anew."""
    return f"{_AGAIN}# The boot that was not right began {host.kernel.booted_at} seconds after 1970.\n"

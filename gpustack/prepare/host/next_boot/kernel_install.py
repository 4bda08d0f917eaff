"""Kernel arguments on hosts with systemd-boot: ``/etc/kernel/cmdline``, and the entries that kernel-install writes.

``kernel-install add`` copies a kernel and its initramfs to the boot partition, and writes an entry with the arguments
in ``/etc/kernel/cmdline`` (kernel-install(8)). So gpustack edits that file and regenerates all entries from it; entries
of future kernels use it too. If an entry has other arguments, they came from elsewhere and would be lost. Then gpustack
reports the entry and blocks the plan.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import RunCommand
from gpustack.hosts.facts.boot_model import BootEntry, BootKernel
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.modprobe import fulfils
from gpustack.prepare.host import record
from gpustack.prepare.host.next_boot.bls import Entries, record_of, swallowed, with_arguments
from gpustack.prepare.host.next_boot.model import compared, kernel_words
from gpustack.prepare.host.own_files import OwnedFile, digest
from gpustack.prepare.host.record import ENTRIES, KERNEL_CMDLINE, MADE
from gpustack.prepare.host.tools import install_kernel

_VENDORS = "/usr/lib/kernel/cmdline"
_TRIES = "/etc/kernel/tries"
_SREL = "/loader/entries.srel"
_MACHINE_ID = "systemd.machine_id"  # kernel-install adds it to the file's arguments
_LAYOUTS = ("", "auto", "bls")
_LAYOUT = re.compile(r"""^\s*layout=["']?([^"'\s#]*)""", re.MULTILINE)


def hindrances(host: Host) -> Iterator[Finding]:
    """Findings about reasons why kernel-install can't regenerate the entries of this host."""
    others = [(path, f"the layout here is {layout}") for path, layout in _layouts(host) if layout not in _LAYOUTS]
    if "kernel-install" not in host.boot.tools:
        others = [("kernel-install", "this program is in none of /usr/sbin, /usr/bin and /sbin"), *others]
    for place, why in others:
        yield finding(Code.ENTRIES_OF_OTHER_LAYOUT, place=host.at(place), why=why)
    if _TRIES in host.files:
        yield finding(Code.BOOT_COUNTING, place=host.at(_TRIES))
    for entry in host.boot.ordinary:
        if _kernel_of(host, entry) is None:
            yield finding(Code.ENTRY_NOT_OF_KERNEL_INSTALL, place=host.at(entry.source))
    for kernel in host.boot.kernels:
        if kernel.source is None:
            sources = [entry.source for entry in host.boot.ordinary if _kernel_of(host, entry) == kernel]
            place = sources[0] if sources else kernel.image or kernel.release
            yield finding(Code.KERNEL_PACKAGE_REMOVED, place=host.at(place), release=kernel.release)


def _layouts(host: Host) -> Iterator[tuple[str, str]]:
    """The settings of kernel-install's layout, each with its file."""
    layouts = [
        (path, matches[-1])
        for path, file in sorted(host.files.items())
        if "/kernel/install.conf" in path and (matches := _LAYOUT.findall(file.text))
    ]
    yield from layouts
    if not layouts:
        for path, file in host.files.items():
            if path.endswith(_SREL) and (told_by_loader := file.text.strip()) != "type1":
                yield path, told_by_loader or "other"


def plan_entries(host: Host, wanted: tuple[str, ...]) -> Entries:
    """Find the missing arguments of ``/etc/kernel/cmdline``, and the entries that must be regenerated.

    :param wanted: all arguments that must be on the kernel's command line.
    """
    recorded = record.recorded(host)
    in_entries = frozenset(recorded.get(ENTRIES, ()))
    text = _without_ours(host, in_entries)
    current = CommandLine(text=text or "")
    needs: dict[str, tuple[str, ...]] = {}
    edits: dict[str, OwnedFile] = {}
    findings = list(_differing(host, current, in_entries))
    if current.for_init is not None:
        findings.append(finding(Code.ARGUMENTS_FOR_INIT, place=host.at(KERNEL_CMDLINE)))
    needs[KERNEL_CMDLINE] = needs[ENTRIES] = tuple(a for a in wanted if not fulfils(current, a))
    file = host.files.get(KERNEL_CMDLINE)
    if text is not None and (file is not None or needs[KERNEL_CMDLINE] or _VENDORS not in host.files):
        if file is None:
            content, mode = record.edited(KERNEL_CMDLINE, text, added=needs[KERNEL_CMDLINE]), "0644"
            needs[MADE] = (f"sha256:{digest(text)}",)
        else:
            content, mode = record.with_added(host, KERNEL_CMDLINE, needs[KERNEL_CMDLINE]), file.mode
        edits[KERNEL_CMDLINE] = OwnedFile(content=content or "", mode=mode, why="the kernels' arguments")
    line = with_arguments(current, needs[ENTRIES])
    findings += swallowed(host, KERNEL_CMDLINE, line, needs[ENTRIES])
    return Entries(
        files=record_of(recorded, needs),
        edits=edits,
        commands=tuple(_commands(host, needs[ENTRIES], in_entries - frozenset(needs[ENTRIES]))),
        next_line=line if host.boot.ordinary else None,
        findings=tuple(findings),
    )


def _without_ours(host: Host, own: frozenset[str]) -> str | None:
    """The content of ``/etc/kernel/cmdline`` without gpustack; if the file is missing, the content to create.

    Without the file, kernel-install uses the running kernel's command line, which may be arbitrary. The host boots
    with the arguments of its entries, so the file is created from them. None if there are no entries.
    """
    if KERNEL_CMDLINE in host.files:
        return record.plain(host)[KERNEL_CMDLINE]
    if _VENDORS in host.files:
        return host.files[_VENDORS].text
    entries = host.boot.ordinary
    pieces = [raw for _, raw in CommandLine(text=entries[0].arguments if entries else "").pieces]
    words = [raw for raw in pieces if raw and raw not in own and raw.partition("=")[0] != _MACHINE_ID]
    return f"{' '.join(words)}\n" if entries else None


def _differing(host: Host, current: CommandLine, own: frozenset[str]) -> Iterator[Finding]:
    file = kernel_words(current.text)
    places = {"-": "the entry", "+": KERNEL_CMDLINE}
    for entry in host.boot.ordinary:
        in_entry = (word for word in kernel_words(entry.arguments) if word.text not in own)
        if changes := list(compared(in_entry, file)):
            different = ", ".join(f"{word.text} is only in {places[sign]}" for sign, word in changes)
            yield finding(Code.ENTRY_DIFFERS_FROM_CMDLINE, place=host.at(entry.source), different=different)


def _commands(host: Host, wanted: tuple[str, ...], obsolete: frozenset[str]) -> Iterator[RunCommand]:
    for entry in host.boot.ordinary:
        kernel, line = _kernel_of(host, entry), CommandLine(text=entry.arguments)
        lacks = [a for a in wanted if not fulfils(line, a)]
        has = [a for a in sorted(obsolete) if line.has(a)]
        if kernel is not None and (lacks or has):
            why = [f"lacks {' '.join(lacks)}"] if lacks else []
            why += [f"still has {' '.join(has)}"] if has else []
            yield install_kernel(kernel, f"its entry {' and '.join(why)}")


def _kernel_of(host: Host, entry: BootEntry) -> BootKernel | None:
    """The kernel of an entry that kernel-install wrote: ``TOKEN-RELEASE.conf`` for ``TOKEN/RELEASE/linux``."""
    for kernel in host.boot.kernels:
        if kernel.image is not None and kernel.image == entry.kernel and kernel.image.endswith("/linux"):
            token = PurePosixPath(kernel.image).parts[-3]
            if PurePosixPath(entry.source).name == f"{token}-{kernel.release}.conf":
                return kernel
    return None


def undo_commands(host: Host) -> Iterator[RunCommand]:
    """The commands that regenerate entries with gpustack's arguments, after these are removed from the file."""
    yield from _commands(host, (), frozenset(record.recorded(host).get(ENTRIES, ())))


def undo_findings(host: Host) -> Iterator[Finding]:
    """Findings about entries that an undo regenerates, and that would get other arguments than they have."""
    own = frozenset(record.recorded(host).get(ENTRIES, ()))
    text = (_without_ours(host, own) or "").strip()
    if host.files.keys().isdisjoint((KERNEL_CMDLINE, _VENDORS)):
        different = f"the file is missing, so that the entries would get the running kernel's instead of: {text}"
        yield finding(Code.ENTRY_DIFFERS_FROM_CMDLINE, place=host.at(KERNEL_CMDLINE), different=different)
    else:
        yield from _differing(host, CommandLine(text=text), own)


def is_made(host: Host) -> bool:
    """Whether gpustack created ``/etc/kernel/cmdline``, and it has not been modified since."""
    digests = record.recorded(host).get(MADE, ())
    return KERNEL_CMDLINE in host.files and f"sha256:{digest(record.plain(host)[KERNEL_CMDLINE])}" in digests

"""Kernel arguments in files that gpustack does not own: the record of added arguments, and their removal.

If boot entries are files (Boot Loader Specification), gpustack can't use a file of its own. Arguments are added to the
entries, and to the files from which entries of future kernels are made. The record lists each added argument and its
place, and only those are removed. Recorded arguments stay in the record: an interrupted run may have left them
anywhere.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from gpustack.base.by_key import by_key
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.grub import DEFAULTS, LINUX, LINUX_DEFAULT, Defaults, read_defaults
from gpustack.prepare.host.own_files import GRUB, RECORD, digest, is_ours

KERNEL_CMDLINE = "/etc/kernel/cmdline"
ENTRIES = "entries"
"""The place of arguments that were added to the boot entries."""
MADE = "made"
"""Marks, instead of a place, that gpustack created ``/etc/kernel/cmdline``; followed by a digest of it without
gpustack's arguments."""
PLACES = (DEFAULTS, KERNEL_CMDLINE, ENTRIES, MADE)
# Arguments that gpustack adds, and the digest after MADE. Nothing else is removed from files of others, even if the
# record was edited.
_ADDED = re.compile(
    r"(?:intel_iommu|iommu|vfio_iommu_type1\.allow_unsafe_interrupts|(?:vfio-pci|pci-stub)\.ids)=[A-Za-z0-9,:]+"
    r"|sha256:[0-9a-f]{64}"
)
_EXPANSION = re.compile(r"[$`\\]")
# The form of assignment that grubby supports: one line, in quotes.
_ASSIGNMENT = re.compile(
    r"""^(?P<before>[ \t]*GRUB_CMDLINE_LINUX=(?P<quote>["']))"""
    r"""(?P<value>[^"'\n]*)(?P<after>(?P=quote)[ \t]*(?:\#.*)?)$""",
    re.MULTILINE,
)


def recorded(host: Host) -> dict[str, tuple[str, ...]]:
    """The recorded arguments by place; invalid lines are ignored.

    Of a host whose GRUB was replaced by systemd-boot, also the arguments of gpustack's drop-in: they are in entries
    that were made from the running kernel's command line.
    """
    lines = host.text(RECORD).splitlines() if is_ours(host.text(RECORD)) else []
    if host.boot.loader == "systemd-boot" and is_ours(drop_in := host.text(GRUB)):
        set_there = CommandLine(text=host.text(KERNEL_CMDLINE))
        arguments = read_defaults({GRUB: drop_in}).arguments(LINUX, LINUX_DEFAULT) or ()
        lines += [f"{ENTRIES} {s.argument.text}" for s in arguments if not set_there.has(s.argument.text)]
    parts = (line.partition(" ") for line in lines)
    by_place = by_key((place, text) for place, _, text in parts if place in PLACES and _ADDED.fullmatch(text))
    if KERNEL_CMDLINE not in by_place and is_of_grubby(host, by_place.get(ENTRIES, ())):
        by_place[KERNEL_CMDLINE] = by_place[ENTRIES]
        text = edited(KERNEL_CMDLINE, host.text(KERNEL_CMDLINE), without=by_place[ENTRIES])
        by_place[MADE] = [f"sha256:{digest(text or '')}"]
    return {place: tuple(arguments) for place, arguments in by_place.items()}


def is_of_grubby(host: Host, added: Collection[str]) -> bool:
    """Whether grubby created ``/etc/kernel/cmdline`` for an earlier version of gpustack.

    It then has the arguments of the last entry, which is the rescue entry, with those that gpustack added.
    """
    line = host.text(KERNEL_CMDLINE).split()
    holding = [entry.recovery for entry in host.boot.entries if entry.arguments.split() == line]
    return host.boot.loader == "grub" and bool(holding) and all(holding) and bool(added) and set(added) <= set(line)


def files(host: Host) -> tuple[str, ...]:
    """The existing files from which entries of future kernels are made."""
    candidates = (DEFAULTS, KERNEL_CMDLINE) if host.boot.loader == "grub" else (KERNEL_CMDLINE,)
    return tuple(path for path in candidates if path in host.files)


def evaluated(text: str) -> Defaults:
    """Evaluate ``/etc/default/grub`` as RHEL's ``grub2-mkconfig`` does: with bash, and without drop-ins."""
    return read_defaults({DEFAULTS: text}, bash=True)


def value_of(path: str, text: str) -> str | None:
    """The arguments that a file sets for future kernels; None if unknown."""
    return text if path == KERNEL_CMDLINE else evaluated(text).text(LINUX)


def edited(path: str, text: str, *, without: Iterable[str] = (), added: Iterable[str] = ()) -> str | None:
    """Remove and add arguments in a file's text; None if there is no line to add them to.

    Nothing else changes, so adding and removing an argument restores the original text. In ``/etc/default/grub``, a
    line is used only if the added arguments are then in the evaluated value. A line with an expansion is not used,
    because another tool may manage its arguments in that variable, and rewrite the line.
    """
    if path == KERNEL_CMDLINE:
        body = text.rstrip("\n")
        return _changed(body, without, added) + text[len(body) :]
    for argument in without:
        holding_line = next((line for line in _lines(text) if argument in line["value"].split()), None)
        if holding_line is not None:
            text = _with_value(text, holding_line, _changed(holding_line["value"], (argument,), ()))
    if not (added := tuple(added)):
        return text
    wanted = [*(value_of(path, text) or "").split(), *added]
    for line in _lines(text):
        longer = _with_value(text, line, _changed(line["value"], (), added))
        arrived = value_of(path, longer)
        if not _EXPANSION.search(line["value"]) and arrived is not None and sorted(arrived.split()) == sorted(wanted):
            return longer
    return None


def _lines(text: str) -> list[re.Match[str]]:
    """The lines that set the arguments, in order of preference: lines without expansion first, the last line first."""
    matches = list(_ASSIGNMENT.finditer(text))
    return sorted(matches, key=lambda line: (_EXPANSION.search(line["value"]) is not None, -line.start()))


def _with_value(text: str, line: re.Match[str], value: str) -> str:
    return f"{text[: line.start('value')]}{value}{text[line.end('value') :]}"


def _changed(value: str, without: Iterable[str], added: Iterable[str]) -> str:
    pieces = list(CommandLine(text=value).pieces)
    for argument in without:
        # The last one: arguments are added at the end.
        index = max((i for i, (_, raw) in enumerate(pieces) if raw == argument), default=None)
        if index is not None:
            pieces[index] = (pieces[index][0][:-1], "")  # at most one space was added before it
    text = "".join(space + raw for space, raw in pieces)
    for argument in added:
        text = f"{text} {argument}" if text else argument
    return text.removeprefix(" ") if not value.startswith(" ") else text


def with_added(host: Host, path: str, added: Collection[str]) -> str | None:
    """An existing file's text with these arguments of gpustack; None if there is no line to add them to.

    A text that has them stays as it is: other tools and operators add arguments behind them.
    """
    text, without = host.files[path].text, plain(host)[path]
    line = CommandLine(text=value_of(path, text) or "")
    if all(line.has(argument) for argument in added) and edited(path, text, without=added) == without:
        return text
    return edited(path, without, added=added)


def plain(host: Host) -> Mapping[str, str]:
    """The texts of :func:`files` without gpustack's arguments, by path."""
    arguments = recorded(host)
    return {p: edited(p, host.files[p].text, without=arguments.get(p, ())) or "" for p in files(host)}


def in_entries(host: Host, *, without: Iterable[str] = ()) -> dict[str, CommandLine]:
    """The arguments of each normal entry that is a file, by its path, without those in ``without``.

    The distribution's tools do not change other entries (``40_custom``, ``custom.cfg``).
    """
    excluded = frozenset(without)
    return {
        entry.source: CommandLine.of(
            a.text for a in CommandLine(text=entry.arguments).arguments if a.text not in excluded
        )
        for entry in host.boot.ordinary
        if entry.is_file
    }

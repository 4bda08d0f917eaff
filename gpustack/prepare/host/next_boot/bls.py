"""Kernel arguments if GRUB's boot entries are files (RHEL and derivatives): grubby, and the sources of new entries.

grubby(8) changes the entries of installed kernels. Entries of future kernels are made from ``/etc/kernel/cmdline``
(kernel-install(8)). If that file is missing, they are made from ``GRUB_CMDLINE_LINUX`` in ``/etc/default/grub``, or
from the running kernel's command line. So gpustack adds arguments to all of these places, to each only missing ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import RunCommand
from gpustack.base.text import quoted
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine, argument
from gpustack.linux.grub import LINUX
from gpustack.linux.modprobe import contradicts, fulfils
from gpustack.prepare.host import record
from gpustack.prepare.host.foreign_config import by_tuned
from gpustack.prepare.host.next_boot import choice
from gpustack.prepare.host.own_files import RECORD, OwnedFile, digest
from gpustack.prepare.host.record import ENTRIES, KERNEL_CMDLINE, MADE
from gpustack.prepare.host.render import render_record


@dataclass(frozen=True, kw_only=True)
class Entries:
    """The desired state of boot entries that are files, and of the files from which new entries are made.

    :ivar files: gpustack's record, by path.
    :ivar edits: the desired content of files of others, by path.
    :ivar commands: the commands that change the entries.
    :ivar next_line: the command line of the first entry after the commands; None without entries.
    """

    files: dict[str, OwnedFile]
    edits: dict[str, OwnedFile]
    commands: tuple[RunCommand, ...]
    next_line: CommandLine | None
    findings: tuple[Finding, ...]


def plan_entries(host: Host, wanted: tuple[str, ...]) -> Entries:
    """Find the missing arguments of each place.

    :param wanted: all arguments that must be on the kernel's command line.
    """
    recorded = record.recorded(host)
    needs = {path: _lacking(record.value_of(path, text), wanted) for path, text in record.plain(host).items()}
    edits = {path: edit for path in needs if (edit := _edit(host, path, needs[path])) is not None}
    lines = record.in_entries(host, without=recorded.get(ENTRIES, ()))
    needs[ENTRIES] = tuple(a for a in wanted if any(not fulfils(line, a) for line in lines.values()))
    first = next(iter(lines.values()), None)
    commands = tuple(_commands(host, needs[ENTRIES], recorded.get(ENTRIES, ())))
    is_lost = record.is_of_grubby(host, recorded.get(ENTRIES, ()))
    if first is not None and (is_lost or (commands and KERNEL_CMDLINE not in host.files)):
        tuned = {sourced.argument.text for sourced in by_tuned({path: f.text for path, f in host.files.items()})}
        entry = choice.chosen(host).entry
        line = first if entry is None else lines.get(entry.source, first)
        text = f"{' '.join(a.text for a in line.arguments if a.text not in tuned)}\n"
        needs |= {KERNEL_CMDLINE: _lacking(text, wanted), MADE: (f"sha256:{digest(text)}",)}
        content = record.edited(KERNEL_CMDLINE, text, added=needs[KERNEL_CMDLINE]) or text
        edits[KERNEL_CMDLINE] = OwnedFile(content=content, mode="0644", why="otherwise, grubby creates it")
    return Entries(
        files=record_of(recorded, needs),
        edits=edits,
        commands=commands,
        next_line=None if first is None else with_arguments(first, needs[ENTRIES]),
        findings=(
            *_file_findings(host, needs, edits),
            *_entry_findings(host, lines, needs[ENTRIES]),
            *(several_lines(host) if commands else ()),
        ),
    )


def _lacking(value: str | None, wanted: tuple[str, ...]) -> tuple[str, ...]:
    line = CommandLine(text=value or "")
    return tuple(a for a in wanted if not fulfils(line, a))


def _edit(host: Host, path: str, needed: tuple[str, ...]) -> OwnedFile | None:
    """The file with the arguments added; None if no line of it can contain them."""
    if (content := record.with_added(host, path, needed)) is None:
        return None
    return OwnedFile(content=content, mode=host.files[path].mode, why="kernel arguments of kernels to come")


def _file_findings(
    host: Host, needs: Mapping[str, tuple[str, ...]], edits: Mapping[str, OwnedFile]
) -> Iterator[Finding]:
    for path, text in record.plain(host).items():
        value, needed = record.value_of(path, text), needs[path]
        if needed and CommandLine(text=value or "").for_init is not None:
            yield finding(Code.ARGUMENTS_FOR_INIT, place=host.at(path))
        if value is None or path not in edits:
            yield from _no_line(host, path, text, needed)
        if path in edits:
            line = CommandLine(text=record.value_of(path, edits[path].content) or "")
            yield from swallowed(host, path, line, needed)


def several_lines(host: Host) -> Iterator[Finding]:
    """The error of a ``/etc/kernel/cmdline`` of which grubby would write back only the first line."""
    if (count := sum(bool(line.strip()) for line in host.text(KERNEL_CMDLINE).split("\n"))) > 1:
        yield finding(Code.KERNEL_CMDLINE_OF_SEVERAL_LINES, place=host.at(KERNEL_CMDLINE), count=count)


def _entry_findings(host: Host, lines: dict[str, CommandLine], needed: tuple[str, ...]) -> Iterator[Finding]:
    yield from _replaced(host, lines, needed)
    for text in needed:
        if sources := ", ".join(source for source, line in lines.items() if line.has(text)):
            how = f"`grubby --update-kernel=ALL --args={quoted(text)}` adds it to all, and gpustack leaves it there"
            yield finding(Code.ARGUMENT_IN_SOME_ENTRIES, place=host.at(sources), argument=text, how=how)
    for source, line in lines.items():
        if line.for_init is None:
            yield from swallowed(host, source, with_arguments(line, needed), needed)
    for entry in host.boot.ordinary:
        if entry.is_file and CommandLine(text=entry.arguments).for_init is not None:
            yield finding(Code.ARGUMENTS_FOR_INIT, place=host.at(entry.source))


def _no_line(host: Host, path: str, text: str, needed: tuple[str, ...]) -> Iterator[Finding]:
    """Why arguments can't be added to a line of ``/etc/default/grub``; to other files they always can."""
    arguments, defaults = ", ".join(needed), record.evaluated(text)
    if not needed:
        return
    for reason in defaults.unknown(LINUX):
        place = host.at(f"{reason.file}:{reason.line}")
        yield finding(Code.GRUB_DEFAULTS_WITHOUT_EFFECT, place=place, arguments=arguments, why=reason.why)
    if defaults.arguments(LINUX):
        yield finding(Code.GRUB_DEFAULTS_WITHOUT_EFFECT, place=host.at(path), arguments=arguments, why=_OVERRIDDEN)
    elif not defaults.unknown(LINUX):
        yield finding(Code.GRUB_DEFAULTS_LINE_MISSING, place=host.at(path))


_OVERRIDDEN = 'no line GRUB_CMDLINE_LINUX="…" is plain (quoted, without variables), or a later line overrides it'
OPEN_QUOTE = "a double quote before them is not closed, so that they are a part of another argument's value"


def swallowed(host: Host, source: str, line: CommandLine, added: tuple[str, ...]) -> Iterator[Finding]:
    """Findings about arguments at the end of a line that the kernel ignores because a quote before them is open."""
    if line.for_init is None and (lost := [a for a in added if not line.has(a)]):
        yield finding(Code.ARGUMENTS_LOST, place=host.hostname, arguments=", ".join(lost), path=source, why=OPEN_QUOTE)


def with_arguments(line: CommandLine, added: tuple[str, ...]) -> CommandLine:
    """Append the missing ones of ``added`` to a line."""
    return CommandLine.of([line.text, *(a for a in added if not fulfils(line, a))])


def record_of(recorded: dict[str, tuple[str, ...]], needs: dict[str, tuple[str, ...]]) -> dict[str, OwnedFile]:
    """The record of arguments by place, those added now and earlier; empty if there are none."""
    lines = [
        f"{place} {a}"
        for place in record.PLACES
        for a in dict.fromkeys((*needs.get(place, ()), *recorded.get(place, ())))
    ]
    if not lines:
        return {}
    return {RECORD: OwnedFile(content=render_record(lines), mode="0644", why="which kernel arguments are gpustack's")}


def _replaced(host: Host, lines: dict[str, CommandLine], add: tuple[str, ...]) -> Iterator[Finding]:
    """Findings about arguments of others that grubby would replace: it identifies arguments by name."""
    for source, line in lines.items():
        for text in add:
            for other in (o for o in line.all(argument(text).name) if not o.same_as(argument(text))):
                if contradicts(other, text):
                    continue  # ARGUMENT_CONFLICTS names it
                is_enough = fulfils(CommandLine(text=other.text), text)
                combined = other.text if is_enough else f"{other.text},{argument(text).value}"
                place, said = host.at(source), other.text
                yield finding(Code.ARGUMENT_REPLACED_BY_GRUBBY, place=place, said=said, wanted=text, both=combined)


def _commands(
    host: Host, needed: tuple[str, ...], ours: tuple[str, ...], why: str = "they are no longer wanted"
) -> Iterator[RunCommand]:
    """The grubby commands. They do not change ``/etc/default/grub``, which gpustack edits before."""
    lines = record.in_entries(host).values()
    gone = dict.fromkeys(a for a in ours if a not in needed)
    if remove := " ".join(a for a in gone if any(line.has(a) for line in lines)):
        yield RunCommand(argv=(*_GRUBBY, f"--remove-args={remove}", _ENTRIES_ONLY), why=why)
    if add := " ".join(a for a in needed if any(not fulfils(line, a) for line in lines)):
        yield RunCommand(argv=(*_GRUBBY, f"--args={add}", _ENTRIES_ONLY), why=f"boot entries lack {add}")


_GRUBBY, _ENTRIES_ONLY = ("grubby", "--update-kernel=ALL"), "--no-etc-grub-update"


def undo_commands(host: Host) -> Iterator[RunCommand]:
    """The commands that remove gpustack's arguments from all boot entries."""
    yield from _commands(host, (), record.recorded(host).get(ENTRIES, ()), "gpustack added them")

"""Kernel arguments where GRUB's boot entries are files, as on RHEL and its kin: grubby, and what they are made from.

grubby(8) changes the entries of the kernels that are installed. Those of kernels to come are made from
``/etc/kernel/cmdline`` (kernel-install(8)), or where that is missing from ``GRUB_CMDLINE_LINUX`` of
``/etc/default/grub``, or from what the running kernel was started with. So arguments go into all of them, and each
place gets only what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpustack.codes import Code
from gpustack.facts.model import Host
from gpustack.findings import Finding, finding
from gpustack.host.boot import record
from gpustack.host.boot.record import ENTRIES
from gpustack.host.own_files import RECORD, OwnedFile
from gpustack.host.render import render_record
from gpustack.linux.cmdline import CommandLine, argument
from gpustack.linux.grub import LINUX
from gpustack.linux.module_parameters import contradicts, fulfils
from gpustack.operations import RunCommand


@dataclass(frozen=True, kw_only=True)
class Entries:
    """What is to become of the places that arguments come from.

    :ivar files: gpustack's record.
    :ivar edits: the files of others, as they shall be.
    :ivar commands: what changes the entries.
    :ivar next_line: the command line of the first entry once that is done; None without entries.
    """

    files: dict[str, OwnedFile]
    edits: dict[str, OwnedFile]
    commands: tuple[RunCommand, ...]
    next_line: CommandLine | None
    findings: tuple[Finding, ...]


def plan_entries(host: Host, wanted: tuple[str, ...]) -> Entries:
    """Work out what each place lacks.

    :param wanted: every argument that must reach the kernel.
    """
    recorded = record.recorded(host)
    needs = {path: _lacking(record.value_of(path, text), wanted) for path, text in record.plain(host).items()}
    edits = {path: edit for path in needs if (edit := _edit(host, path, needs[path])) is not None}
    lines = record.in_entries(host, without=recorded.get(ENTRIES, ()))
    needs[ENTRIES] = tuple(a for a in wanted if any(not fulfils(line, a) for line in lines.values()))
    first = next(iter(lines.values()), None)
    return Entries(
        files=record_of(recorded, needs),
        edits=edits,
        commands=tuple(_commands(host, needs[ENTRIES], recorded.get(ENTRIES, ()))),
        next_line=None if first is None else with_arguments(first, needs[ENTRIES]),
        findings=(*_file_findings(host, needs, edits), *_entry_findings(host, lines, needs[ENTRIES])),
    )


def _lacking(value: str | None, wanted: tuple[str, ...]) -> tuple[str, ...]:
    line = CommandLine(text=value or "")
    return tuple(a for a in wanted if not fulfils(line, a))


def _edit(host: Host, path: str, needed: tuple[str, ...]) -> OwnedFile | None:
    """The file with the arguments; None if no line of it can take them."""
    content = record.edited(path, record.plain(host)[path], added=needed)
    if content is None:
        return None
    return OwnedFile(content=content, mode=host.files[path].mode, why="kernel arguments of kernels to come")


def _file_findings(
    host: Host, needs: Mapping[str, tuple[str, ...]], edits: Mapping[str, OwnedFile]
) -> Iterator[Finding]:
    for path, text in record.plain(host).items():
        value, needed = record.value_of(path, text), needs[path]
        if needed and CommandLine(text=value or "").for_init is not None:
            yield finding(Code.ARGUMENTS_FOR_INIT, place=f"{host.hostname} {path}")
        if value is None or path not in edits:
            yield from _no_line(host, path, text, needed)
        if path in edits:
            line = CommandLine(text=record.value_of(path, edits[path].content) or "")
            yield from swallowed(host, path, line, needed)


def _entry_findings(host: Host, lines: dict[str, CommandLine], needed: tuple[str, ...]) -> Iterator[Finding]:
    yield from _replaced(host, lines, needed)
    for source, line in lines.items():
        if line.for_init is None:
            yield from swallowed(host, source, with_arguments(line, needed), needed)
    for entry in host.boot.entries:
        if not entry.recovery and CommandLine(text=entry.arguments).for_init is not None:
            yield finding(Code.ARGUMENTS_FOR_INIT, place=f"{host.hostname} {entry.source}")


def _no_line(host: Host, path: str, text: str, needed: tuple[str, ...]) -> Iterator[Finding]:
    """Why no line of ``/etc/default/grub`` can take arguments; a file of another kind always can."""
    arguments, defaults = ", ".join(needed), record.evaluated(text)
    if not needed:
        return
    for reason in defaults.unknown(LINUX):
        place = f"{host.hostname} {reason.file}:{reason.line}"
        yield finding(Code.GRUB_DEFAULTS_WITHOUT_EFFECT, place=place, arguments=arguments, why=reason.why)
    if defaults.arguments(LINUX):
        yield finding(
            Code.GRUB_DEFAULTS_WITHOUT_EFFECT, place=f"{host.hostname} {path}", arguments=arguments, why=_OVERRIDDEN
        )
    elif not defaults.unknown(LINUX):
        yield finding(Code.GRUB_DEFAULTS_LINE_MISSING, place=f"{host.hostname} {path}")


_OVERRIDDEN = 'a later line overrides each plain line GRUB_CMDLINE_LINUX="…", or all such lines contain variables'
OPEN_QUOTE = "a double quote before them is not closed, so that they are a part of another argument's value"


def swallowed(host: Host, source: str, line: CommandLine, added: tuple[str, ...]) -> Iterator[Finding]:
    """Arguments at the end of a line that the kernel would not see there: a quote before them is left open."""
    if line.for_init is None and (lost := [a for a in added if not line.has(a)]):
        yield finding(Code.ARGUMENTS_LOST, place=host.hostname, arguments=", ".join(lost), path=source, why=OPEN_QUOTE)


def with_arguments(line: CommandLine, added: tuple[str, ...]) -> CommandLine:
    """A line with what it lacks of some arguments."""
    return CommandLine.of([line.text, *(a for a in added if not fulfils(line, a))])


def record_of(recorded: dict[str, tuple[str, ...]], needs: dict[str, tuple[str, ...]]) -> dict[str, OwnedFile]:
    """The record of what was added where, now and earlier."""
    lines = [
        f"{place} {a}"
        for place in record.PLACES
        for a in dict.fromkeys((*needs.get(place, ()), *recorded.get(place, ())))
    ]
    if not lines:
        return {}
    return {RECORD: OwnedFile(content=render_record(lines), mode="0644", why="which kernel arguments are gpustack's")}


def _replaced(host: Host, lines: dict[str, CommandLine], add: tuple[str, ...]) -> Iterator[Finding]:
    """Arguments of others that grubby would replace: it knows an argument by its name."""
    for source, line in lines.items():
        for text in add:
            for other in (o for o in line.all(argument(text).name) if not o.same_as(argument(text))):
                if contradicts(other, text):
                    continue  # ARGUMENT_CONFLICTS names it
                is_enough = fulfils(CommandLine(text=other.text), text)
                combined = other.text if is_enough else f"{other.text},{argument(text).value}"
                yield finding(
                    Code.ARGUMENT_REPLACED_BY_GRUBBY,
                    place=f"{host.hostname} {source}",
                    said=other.text,
                    wanted=text,
                    both=combined,
                )


def _commands(host: Host, needed: tuple[str, ...], ours: tuple[str, ...]) -> Iterator[RunCommand]:
    """grubby's calls; it leaves ``/etc/default/grub`` alone, which has been edited by then."""
    lines = record.in_entries(host).values()
    gone = dict.fromkeys(a for a in ours if a not in needed)
    remove = tuple(a for a in gone if any(line.has(a) for line in lines))
    add = tuple(a for a in needed if any(not fulfils(line, a) for line in lines))
    if remove:
        yield _remove_arguments(remove, "they are no longer wanted")
    if add:
        joined = " ".join(add)
        argv = ("grubby", "--update-kernel=ALL", f"--args={joined}", "--no-etc-grub-update")
        yield RunCommand(argv=argv, why=f"boot entries lack {joined}")


def undo_commands(host: Host) -> Iterator[RunCommand]:
    """Take gpustack's arguments out of every boot entry."""
    lines = record.in_entries(host).values()
    recorded = record.recorded(host).get(ENTRIES, ())
    if removable := tuple(argument for argument in recorded if any(line.has(argument) for line in lines)):
        yield _remove_arguments(removable, "gpustack added them")


def _remove_arguments(arguments: tuple[str, ...], why: str) -> RunCommand:
    joined = " ".join(arguments)
    argv = ("grubby", "--update-kernel=ALL", f"--remove-args={joined}", "--no-etc-grub-update")
    return RunCommand(argv=argv, why=why)

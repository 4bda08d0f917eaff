"""Adopt hand-made configuration: comment out its lines, and store the original files in a journal.

An adopted line becomes a comment that starts with :data:`GONE`. If only a part of a line is adopted, the original line
becomes a comment that starts with :data:`INSTEAD`, and the next line is the remainder. Each change of kernel arguments
and modprobe.d files is checked before it is planned: the files must evaluate as before, except for the adopted parts.

Lines that gpustack can't adopt get a remedy that replaces the one with ``--adopt``. An argument of a boot entry may
come from tuned, or from a variable in ``/etc/default/grub`` that EDPM (RHOSO) or TripleO manages and rewrites. It must
be removed from that source.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import PurePosixPath

from gpustack.base.by_key import by_key
from gpustack.base.errors import HostError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation, RemoveFile, WriteFile
from gpustack.base.text import quoted
from gpustack.hosts.facts.collector.limits import TEXT_LIMIT
from gpustack.hosts.facts.model import ConfigFile, Host
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.grub import DEFAULTS, LINUX, LINUX_DEFAULT, TUNED, read_defaults
from gpustack.linux.modprobe import Statement, parse
from gpustack.prepare.host.own_files import ADOPTED, MARK, is_exact
from gpustack.prepare.host.prior_setup.traces import Part, Trace
from gpustack.prepare.host.record import KERNEL_CMDLINE
from gpustack.prepare.host.tools import has_systemd_boot

GONE = "# adopted by gpustack: "
INSTEAD = "# gpustack has taken a part of this over: "
_Texts = Mapping[str, str]
_UNSAFE = "it can't be taken out by itself"
_RESTORED = "that part is restored, and the changes stay"
_KEPT = f"the changes stay, and the line below each comment {INSTEAD.strip()!r} is not restored"
_PATH = re.compile(r"/etc/(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f\x7f]+")
_MODE = re.compile(r"0?[0-7]{3,4}")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A file of which parts were adopted.

    :ivar before: the original text.
    :ivar after: the text after the adoption; None if the file was removed.
    """

    before: str
    after: str | None
    mode: str


Outcome = tuple[tuple[Operation, ...], tuple[Finding, ...], Host]
"""The operations, the findings about them, and the facts afterwards."""


def adopt(host: Host, traces: Iterable[Trace]) -> Outcome:
    """Adopt the traces that can be adopted, and report the others; the first operation writes the journal.

    :raises HostError: if the journal is malformed, or the files are too large for it.
    """
    files = dict(host.files)
    findings: list[Finding] = []
    entries = dict(journalled(host))
    reasons: dict[str, list[str]] = {}
    for path, of_file in groupby(traces, key=lambda trace: trace.path):
        file = host.files.get(path)
        if file is None:  # a boot entry
            findings += (_not_adopted(host, trace) for trace in of_file if not trace.agrees)
            continue
        after, adopted, retained = _edited(host, path, list(of_file))
        findings += (_report(Code.PRIOR_SETUP_ADOPTED, host, trace) for trace in adopted)
        findings += (_not_adopted(host, trace) for trace in retained if not (trace.agrees and trace.stays))
        if not adopted:
            continue
        reasons.setdefault(path, []).extend(trace.said for trace in adopted)
        entries[path] = Taken(before=restored(file.text, entries.get(path)), after=after, mode=file.mode)
        files.pop(path, None)
        if after is not None:
            files[path] = file.model_copy(update={"text": after, "mtime_ns": None})
    if len(written(entries).encode()) > TEXT_LIMIT:  # the collector would not read all of it
        what = "the files with what was set up by hand are too large to be kept for an undo"
        raise HostError(what, where=host.hostname, remedy="take the lines that the plan names out by hand")
    operations = tuple(_operations(host, entries, reasons))
    return operations, tuple(findings), host.model_copy(update={"files": files})


def _edited(host: Host, path: str, traces: list[Trace]) -> tuple[str | None, list[Trace], list[Trace]]:
    """The file after the adoption (None if removed), the adopted traces, and the retained traces."""
    texts = {other: entry.text for other, entry in host.files.items()}
    adopted: list[Trace] = []
    retained: list[Trace] = []
    # From the last line to the first, so that the numbers of the remaining lines do not change.
    for line, on_line in reversed([(n, list(group)) for n, group in groupby(traces, key=lambda t: t.line)]):
        wanted = [trace for trace in on_line if trace.stays is None]
        retained += (trace for trace in on_line if trace.stays is not None)
        after = _without(texts, path, line, wanted) if wanted and _is_whole(host, path) else None
        if after is None:
            retained += wanted
        else:
            texts = after
            adopted += wanted
    return texts.get(path), adopted, retained


def _not_adopted(host: Host, trace: Trace) -> Finding:
    return _report(Code.PRIOR_SETUP_NOT_ADOPTED, host, trace, why=trace.stays or _UNSAFE)


def _report(code: Code, host: Host, trace: Trace, why: str = "") -> Finding:
    return finding(code, place=host.at(trace.place), said=trace.said[:200], why=why)


def _is_whole(host: Host, path: str) -> bool:
    """Whether a file can be written: it is no link, was read completely, and is valid UTF-8."""
    file = host.files[path]
    return file.link is None and is_exact(file.text) and not any(entry.path == path for entry in host.unread)


def _operations(host: Host, entries: Mapping[str, Taken], reasons: Mapping[str, list[str]]) -> Iterator[Operation]:
    if not reasons:
        return
    before, content = host.text(ADOPTED) or None, written(entries)
    if before != content:
        why = "the files as they were, for undo.yml"
        yield WriteFile(path=ADOPTED, content=content, before=before, mode="0600", why=why)
    for path, why_each in reasons.items():
        file, after = host.files[path], entries[path].after
        why = f"adopted: {'; '.join(reversed(why_each))}"
        if after is None:
            yield RemoveFile(path=path, before=file.text, why=why)
        else:
            yield WriteFile(path=path, content=after, before=file.text, mode=file.mode.zfill(4), why=why)


# --- removing ---------------------------------------------------------------------------------------------------


def _without(texts: Mapping[str, str], path: str, number: int, wanted: list[Trace]) -> dict[str, str] | None:
    """The files without the traces on one line; None if the change would have other effects."""
    if wanted[0].part is Part.FILE:
        return {other: text for other, text in texts.items() if other != path}
    line = texts[path].split("\n")[number - 1]
    if line.startswith((GONE, INSTEAD)):
        return None
    parts = {trace.part for trace in wanted}
    if parts == {Part.ARGUMENT}:
        remainder = _without_arguments(texts, path, number, wanted)
        changed = [f"{INSTEAD}{line}", remainder] if remainder is not None else []
    elif parts == {Part.OPTION}:
        remainder = _without_options(line)
        changed = [f"{GONE}{line}"] if remainder is None else [f"{INSTEAD}{line}", remainder]
    elif parts == {Part.COMMAND}:
        changed = [f": {GONE}{line}"]  # an empty "then" would be a syntax error
    else:
        changed = [f"{GONE}{line}"] if parts == {Part.LINE} else []
    after = _with_line(texts, path, number, *changed)
    return after if changed and _is_proved(texts, after, path, number, wanted) else None


def _without_options(line: str) -> str | None:
    """``options vfio-pci ids=… disable_vga=1`` without ``ids``; None if no option is left."""
    command, module, *rest = line.split(maxsplit=2)
    names = ("ids", "allow_unsafe_interrupts")
    options = CommandLine.of(rest).arguments
    remaining = [option.text for option in options if not any(map(option.is_for, names))]
    return " ".join([command, module, *remaining]) if remaining else None


def _without_arguments(texts: Mapping[str, str], path: str, number: int, wanted: list[Trace]) -> str | None:
    """Remove arguments from a line, one occurrence after another; None if that is not possible.

    The same text may also be part of another argument's value, so each step is checked.
    """
    line = texts[path].split("\n")[number - 1]
    unwanted = [trace.said for trace in wanted]
    for text in [argument for argument in _arguments_on(texts, path, number) if argument in unwanted]:
        for match in re.finditer(rf"(?<![^\s\"'=]){re.escape(text)}(?![^\s\"'])", line):
            start, end = match.span()
            before, after = line[:start].rstrip(" \t"), line[end:].lstrip(" \t")
            shorter = before + line[end:] if len(before) < start else line[:start] + after
            expected = _arguments_on(_with_line(texts, path, number, line), path, number)
            expected.remove(text)
            if sorted(_arguments_on(_with_line(texts, path, number, shorter), path, number)) == sorted(expected):
                line = shorter
                break
        else:
            return None
    return line


def _with_line(texts: Mapping[str, str], path: str, number: int, *changed: str) -> dict[str, str]:
    lines = texts[path].split("\n")
    return {**texts, path: "\n".join([*lines[: number - 1], *changed, *lines[number:]])}


def _arguments_on(texts: Mapping[str, str], path: str, number: int) -> list[str]:
    """The kernel arguments on a line."""
    defaults = read_defaults(texts)
    return [
        sourced.argument.text
        for variable in (LINUX, LINUX_DEFAULT)
        for sourced in defaults.arguments(variable) or ()
        if (sourced.file, sourced.line) == (path, number)
    ]


def _is_proved(before: _Texts, after: _Texts, path: str, number: int, wanted: list[Trace]) -> bool:
    parts = {trace.part for trace in wanted}
    if parts == {Part.ARGUMENT}:
        return _arguments_are(before, after, path, number, [trace.said for trace in wanted])
    if path.startswith("/etc/modprobe.d/"):
        before_words = [_words(s) for s in parse(before[path], path) if s.line != number]
        after_words = [_words(s) for s in parse(after[path], path)]
        remainder = _without_options(before[path].split("\n")[number - 1]) if parts == {Part.OPTION} else None
        if remainder is not None:
            index = sum(s.line < number for s in parse(before[path], path))
            before_words[index:index] = [_words(s) for s in parse(remainder, path)]
        return before_words == after_words
    return True


def _words(statement: Statement) -> tuple[str, ...]:
    return (statement.command, statement.module, *statement.words)


def _arguments_are(before: _Texts, after: _Texts, path: str, number: int, dropped: list[str]) -> bool:
    """Whether the files evaluate as before, except for the dropped arguments."""
    old_defaults, new_defaults = read_defaults(before), read_defaults(after)
    others = old_defaults.values.keys() - {LINUX, LINUX_DEFAULT}
    if old_defaults.values.keys() != new_defaults.values.keys():
        return False
    if any(old_defaults.text(name) != new_defaults.text(name) for name in others):
        return False
    for name in old_defaults.values.keys() - others:
        old, new = old_defaults.arguments(name), new_defaults.arguments(name)
        if old is None or new is None:
            return False
        on_line = {(path, number, text) for text in dropped}
        remaining = [s.argument.text for s in old if (s.file, s.line, s.argument.text) not in on_line]
        if remaining != [s.argument.text for s in new]:
            return False
    return True


# --- journal and restore ----------------------------------------------------------------------------------------


def written(entries: Mapping[str, Taken]) -> str:
    """The text of the journal."""
    files = {path: asdict(entry) for path, entry in sorted(entries.items())}
    title = f"{MARK} Configuration by hand that gpustack adopted; `gpustack host undo` restores it."
    return f"{title}\n{json.dumps(files, indent=1)}\n"


def journalled(host: Host) -> dict[str, Taken]:
    """The adopted files in the host's journal, by path.

    :raises HostError: if the journal is malformed.
    """
    if (file := host.files.get(ADOPTED)) is None:
        return {}
    try:
        entries = json.loads(file.text.partition("\n")[2])
        journal_entries = {
            str(path): Taken(
                before=str(e["before"]), after=None if e["after"] is None else str(e["after"]), mode=e["mode"]
            )
            for path, e in entries.items()
        }
        is_ours = all(_PATH.fullmatch(path) and _MODE.fullmatch(entry.mode) for path, entry in journal_entries.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_ours = False
    if not is_ours:
        remedy = f"restore the lines in it by hand, then remove {ADOPTED}"
        raise HostError("the journal of adopted configuration is malformed", where=host.at(ADOPTED), remedy=remedy)
    return journal_entries


def restored(text: str, entry: Taken | None) -> str:
    """Restore the adopted parts of a file's text; other changes since the adoption are kept."""
    if entry is not None and text == entry.after:
        return entry.before
    pairs = set(pairwise((entry.after or "").split("\n"))) if entry is not None else set()
    original: list[str] = []
    lines = pairwise([*text.split("\n"), ""])
    for line, following in lines:
        if line.startswith((GONE, f": {GONE}")):
            original.append(line.partition(GONE)[2])
        elif line.startswith(INSTEAD) and (line, following) in pairs:
            original.append(line.removeprefix(INSTEAD))
            next(lines, None)  # the remainder
        else:
            original.append(line)
    return "\n".join(original)


def give_back(host: Host) -> Outcome:
    """Restore adopted configuration.

    :raises HostError: if the journal is malformed.
    """
    operations: list[Operation] = []
    findings: list[Finding] = []
    files = dict(host.files)
    for path, entry in journalled(host).items():
        file = host.files.get(path)
        text = entry.before if file is None else restored(file.text, entry)
        if file is not None and file.text not in (entry.before, entry.after):
            state = _KEPT if any(line.startswith(INSTEAD) for line in text.split("\n")) else _RESTORED
            findings.append(finding(Code.ADOPTED_FILE_MODIFIED, place=host.at(path), state=state))
        if file is None and entry.after is not None:
            findings.append(finding(Code.ADOPTED_FILE_REMOVED, place=host.at(path)))
            continue
        if file is None or file.text != text:
            before, mode = (None, entry.mode.zfill(4)) if file is None else (file.text, file.mode.zfill(4))
            why = "what was set up by hand before gpustack"
            operations.append(WriteFile(path=path, content=text, before=before, mode=mode, why=why))
            files[path] = ConfigFile(text=text, mode=mode, mtime_ns=None)
    return tuple(operations), tuple(findings), host.model_copy(update={"files": files})


_CODES = frozenset(
    {
        Code.ARGUMENT_CONFLICTS,
        Code.IDS_CONFLICT,
        Code.NEEDED_MODULE_DISABLED,
        Code.SCRIPT_TOUCHES_DEVICES,
        Code.DRIVERCTL_CONFLICTS,
    }
)
"""The findings whose default remedy offers ``--adopt``."""
_VARIABLE = re.compile(r"\s*(?:export\s+)?(\w+)=")
_OWNERS = {"EDPM": "edpm_kernel_args of the node set", "TRIPLEO": "KernelArgs of the TripleO role"}


def with_remedies(
    host: Host, findings: Iterable[Finding], traces: Iterable[Trace], *, adopted: bool
) -> Iterator[Finding]:
    """Replace the remedies of findings about lines that can't be adopted.

    :param adopted: whether all adoptable lines have been adopted already.
    """
    by_place = by_key((host.at(trace.place), trace) for trace in traces if not trace.agrees)
    for found in findings:
        conflicting = by_place.get(found.place, [])
        if found.code not in _CODES or (not adopted and any(trace.stays is None for trace in conflicting)):
            yield found
        else:
            remedy = _way(host, found.place.removeprefix(f"{host.hostname} "), conflicting, by_place)
            yield replace(found, remedy=f"{remedy}, then plan again; gpustack can't take it over")


def _way(host: Host, place: str, conflicting: list[Trace], by_place: dict[str, list[Trace]]) -> str:
    path = conflicting[0].path if conflicting else re.sub(r":\d+$", "", place)
    texts = sorted({trace.said for trace in conflicting if trace.part is Part.ARGUMENT})
    text = " ".join(texts) or "this line"
    if path == TUNED:
        commands = "`tuned-adm active`, `tuned-adm profile NAME`"
        return f"choose or write a tuned profile that does not set {text} ({commands})"
    if texts and host.boot.bls:
        return _from_entries(host, text, by_place)
    if "/systemd/system/" in path:
        return f"`systemctl disable {quoted(PurePosixPath(path).name)}`, or take the device out of the unit"
    if not path.startswith("/etc/"):
        # How to mask a file of a package: by a file of the same name in ``/etc``.
        name = re.sub(r"^/(?:usr/local/lib|usr/lib/dracut|usr/lib|lib|run)/", "/etc/", path)
        if name == path or path.startswith("/run/"):
            return f"find what writes {path}, and change that"
        command = f"`ln -s /dev/null {quoted(name)}`"
        return f"{command} hides this file of a package (copy its other lines to a file of another name)"
    return f"take {text} out of {conflicting[0].place if conflicting else place}, or correct it there, by hand"


def _from_entries(host: Host, text: str, by_place: dict[str, list[Trace]]) -> str:
    if has_systemd_boot(host):
        return f"take {text} out of {KERNEL_CMDLINE}, `kernel-install add RELEASE IMAGE` for each kernel"
    sources = [t for traces in by_place.values() for t in traces if t.path == DEFAULTS and t.said in text.split(" ")]
    for trace in sources:
        variable = _VARIABLE.match(host.files[DEFAULTS].text.split("\n")[trace.line - 1])
        if variable is not None and not variable[1].startswith("GRUB_CMDLINE_LINUX"):
            owner = next((of for name, of in _OWNERS.items() if name in variable[1]), "the tool that sets it")
            return f"change {owner}: {text} comes from {variable[1]} ({trace.place})"
    sources_of_new = (path for path in (KERNEL_CMDLINE, DEFAULTS) if path in host.files)
    files = " and ".join(path for path in sources_of_new if any(t in host.files[path].text for t in text.split(" ")))
    command = f"`grubby --update-kernel=ALL --remove-args={quoted(text)} --no-etc-grub-update`"
    return f"{command}; take it out of {files} as well" if files else command

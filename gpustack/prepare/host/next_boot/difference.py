"""The difference between two boots, and the words of it that block a plan.

Two differences count: that of the next boot to the running system, which only a reboot shows, and that to the present
menu, whose arguments a regenerated menu would lose. The kernel compares names with ``-`` and ``_`` as equal; the order
counts among words of one name.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation, RemoveFile, WriteFile
from gpustack.base.text import quoted
from gpustack.hosts.facts.model import ConfigFile, Host
from gpustack.linux.cmdline import CommandLine, argument
from gpustack.linux.grub import LINUX, LINUX_DEFAULT, read_defaults
from gpustack.linux.grub import paths as grub_paths
from gpustack.linux.modprobe import fulfils
from gpustack.prepare.host import record
from gpustack.prepare.host.desired import BOOT_IMAGE, LONGEST_COMMAND_LINE, MANAGED, Desired
from gpustack.prepare.host.next_boot import obstacles, predict
from gpustack.prepare.host.next_boot.model import GPUSTACK, BootWord, NextBoot, compared
from gpustack.prepare.host.next_boot.trial import ARGUMENTS, MARKER, is_running
from gpustack.prepare.host.own_files import GRUB
from gpustack.prepare.host.prior_setup.adopt import journalled
from gpustack.prepare.host.tools import has_systemd_boot

_LOADERS = {"grub": "GRUB", "systemd-boot": "systemd-boot"}
_ADDING = {
    "menu": "add the argument to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub",
    "entries": "`grubby --update-kernel=ALL --args={}`",
    "systemd-boot": "add the argument to /etc/kernel/cmdline, `kernel-install add RELEASE IMAGE` for each kernel",
}
_CHOOSING = {
    "menu": "GRUB_DEFAULT in /etc/default/grub, then `update-grub`",
    "entries": "`grubby --set-default=IMAGE`; of a menu by hand, `grub2-mkconfig -o /boot/grub2/grub.cfg`",
    "systemd-boot": "`bootctl set-default ENTRY`",
}


class MenuExpectation(TypedDict):
    """A generated menu: its path, the words of each ordinary entry, the variable ``default``, the first kernel."""

    path: str
    words: list[str]
    default: str
    first: str


@dataclass(frozen=True, kw_only=True)
class WordChange:
    """A word that the next boot adds or loses.

    :ivar sign: ``+`` or ``-``.
    :ivar source: where the word comes from, or the only place that has it.
    :ivar place: the file and line of ``source``.
    :ivar is_own: whether gpustack manages the parameter.
    :ivar is_accepted: whether the spec accepts it (``options.boot_changes``).
    """

    sign: str
    word: BootWord
    source: str
    place: str
    is_own: bool
    is_accepted: bool

    @property
    def blocks(self) -> bool:
        """Whether it blocks a plan."""
        return not (self.is_own or self.is_accepted)

    def to_dict(self) -> dict[str, object]:
        """The change as plain data, for JSON."""
        verdict = "own" if self.is_own else "accepted" if self.is_accepted else "blocked"
        return {"sign": self.sign, "word": self.word.text, "source": self.source, "verdict": verdict}


@dataclass(frozen=True, kw_only=True)
class BootDifference:
    """The running boot, the next one as it is, the next one after the plan, and the changed words."""

    running: NextBoot
    now: NextBoot
    after: NextBoot
    changes: tuple[WordChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the next boot has the kernel and the words of the running system."""
        return not self.changes and self.running.kernel in (None, self.after.kernel)

    def to_dict(self) -> dict[str, object]:
        """The difference as plain data, for JSON."""
        return {
            **{name: getattr(self, name).to_dict() for name in ("running", "now", "after")},
            "changes": [change.to_dict() for change in self.changes],
        }

    def show(self) -> Iterator[str]:
        """The lines of the text output."""
        after = self.after
        parts = [_LOADERS.get(after.loader or "", "unknown boot loader")]
        if after.entry:
            parts.append(f'"{after.entry}"' + (f" ({after.why})" if after.why else ""))
        if after.kernel:
            old = self.running.kernel
            parts.append(f"Linux {after.kernel}" + (f" instead of {old}" if old not in (None, after.kernel) else ""))
        yield f"Next boot: {', '.join(parts)}"
        groups = by_key(((change.sign, change.source), change.word.text) for change in self.changes)
        width = max((len(" ".join(words)) for words in groups.values()), default=0)
        for (sign, source), words in groups.items():
            yield f"  {sign} {' '.join(words):<{width}}  {source}"
        if after.words is not None and not groups:
            yield "  the same arguments"
        for reason in after.unknown:
            yield f"  unknown: {reason}"


def after(host: Host, operations: Sequence[Operation], drop_in: str | None) -> NextBoot:
    """The next boot after operations.

    :param drop_in: the content of gpustack's drop-in of GRUB's defaults then; None without it.
    """
    texts = {path: text for path, text in _texts(host, operations).items() if path != GRUB}
    texts |= {} if drop_in is None else {GRUB: drop_in}
    return predict.after(host, None if host.boot.bls else read_defaults(texts), operations, texts)


def _texts(host: Host, operations: Sequence[Operation]) -> dict[str, str]:
    """The texts of files after operations, by path."""
    texts = {path: file.text for path, file in host.files.items()}
    texts |= {o.path: o.content for o in operations if isinstance(o, WriteFile)}
    for operation in operations:
        if isinstance(operation, RemoveFile):
            texts.pop(operation.path, None)
    return texts


def menus(host: Host, operations: Sequence[Operation]) -> dict[str, MenuExpectation]:
    """The menus that ``update-grub`` is expected to generate before and after the files of a plan are written."""
    if host.boot.mounts is None or not any(getattr(o, "argv", ()) == ("update-grub",) for o in operations):
        return {}
    before = _expected(host, {path: file.text for path, file in host.files.items()})
    after = _expected(host, _texts(host, operations))
    return {} if before is None or after is None else {"before": before, "after": after}


def _expected(host: Host, texts: Mapping[str, str]) -> MenuExpectation | None:
    menu = predict.generated(host, read_defaults(texts))
    if menu.unknown or not menu.entries or host.boot.environment is None:
        return None
    first = menu.entries[0]
    return {
        "path": host.boot.environment.path.replace("/grubenv", "/grub.cfg"),
        "words": [word.text for word in menu.words[first.position or ""]],
        "default": menu.default,
        "first": (first.kernel or "").rpartition("/")[2],
    }


def difference(
    host: Host, after: NextBoot, operations: Sequence[Operation] = (), *, accepted: Collection[str] = ()
) -> BootDifference:
    """Compare the next boot with the running system and with the present menu.

    :param operations: the plan's, which may adopt words.
    :param accepted: the changes that the spec accepts, each with its sign.
    """
    running, now = predict.running(host), predict.now(host)
    of_trial: set[str] = set()
    # The words of a trial stay on the running command line until the next boot, also after the trial has passed.
    if is_running(host) or any(word.name == MARKER for word in running.words or ()):
        of_trial = {argument(text).name for text in ARGUMENTS}
    own = _own_words(host, operations)
    found: dict[tuple[str, str], BootWord] = {}
    for before in (running, now):
        if before.words is not None and after.words is not None:
            for sign, word in compared(before.words, after.words):
                found.setdefault((sign, word.text), word)
    in_menu = {word.text for word in now.words or ()}
    is_gpustacks = {k: w.source == GPUSTACK or w.name in of_trial or w.text in own for k, w in found.items()}
    changes = [
        WordChange(
            sign=sign,
            word=word,
            source=GPUSTACK if is_gpustacks[sign, text] else _source(sign, word, now, text in in_menu),
            place=word.source if sign == "+" else now.place if text in in_menu else "/proc/cmdline",
            is_own=is_gpustacks[sign, text] or word.name in MANAGED,
            is_accepted=f"{sign}{text}" in accepted,
        )
        for (sign, text), word in found.items()
    ]
    order = sorted(changes, key=lambda change: (not change.is_own, change.sign == "+"))
    return BootDifference(running=running, now=now, after=after, changes=tuple(order))


def _own_words(host: Host, operations: Sequence[Operation]) -> set[str]:
    """The words that gpustack has written or adopted, or does with the operations of a plan."""
    texts, words = _texts(host, operations), set[str]()
    files = {path: ConfigFile(text=text, mode="0644", mtime_ns=None) for path, text in texts.items()}
    for state in (host, host.model_copy(update={"files": files})):
        words |= {word for of_place in record.recorded(state).values() for word in of_place}
        words |= _words_in({GRUB: state.files[GRUB].text} if GRUB in state.files else {})
        adopted = journalled(state)
        for path in grub_paths(adopted):
            words |= _words_in({path: adopted[path].before}) - _words_in({path: adopted[path].after or ""})
    return words


def _words_in(texts: Mapping[str, str]) -> set[str]:
    return {sourced.argument.text for sourced in read_defaults(texts).arguments(LINUX, LINUX_DEFAULT) or ()}


def _source(sign: str, word: BootWord, now: NextBoot, is_in_menu: bool) -> str:
    if sign == "-":
        return f"only in {now.place}" if is_in_menu else "only on the running kernel's command line"
    return f"{word.source}, {'not booted yet' if is_in_menu else 'never applied'}"


def findings(host: Host, difference: BootDifference, desired: Desired | None = None) -> Iterator[Finding]:
    """Words of others, unknown parts of the next boot, and arguments and drivers that it lacks.

    :param desired: the arguments and modules that the next boot needs; None for an undo.
    """
    if host.boot.mounts is None:
        return  # an older collector: its facts don't show which entry boots
    yield from _words(host, difference, is_undo=desired is None)
    after = difference.after
    if desired is None or after.unknown:
        return
    line, place = CommandLine(text=after.line), host.at(after.place)
    if after.words is not None and (lacking := [a for a in desired.arguments if not fulfils(line, a)]):
        code, missing, how = Code.NEXT_BOOT_LACKS_ARGUMENTS, ", ".join(lacking), _of_loader(host, _CHOOSING)
        yield finding(code, place=place, entry=after.entry, why=after.why, arguments=missing, how=how)
    if desired.entries is not None and len(after.line) + BOOT_IMAGE > LONGEST_COMMAND_LINE:
        yield finding(Code.ENTRY_LINE_TOO_LONG, place=place, length=len(after.line), longest=LONGEST_COMMAND_LINE)
    yield from obstacles.kernel_findings(host, after, desired.binding.early_modules)
    if predict.skips_initramfs(host):
        yield finding(Code.BOOT_WITHOUT_INITRAMFS, place=host.hostname)


def _of_loader(host: Host, ways: dict[str, str]) -> str:
    return ways["systemd-boot" if has_systemd_boot(host) else "entries" if host.boot.bls else "menu"]


def _words(host: Host, difference: BootDifference, *, is_undo: bool) -> Iterator[Finding]:
    for change in (change for change in difference.changes if change.blocks):
        code = Code.NEXT_BOOT_ADDS_ARGUMENT if change.sign == "+" else Code.NEXT_BOOT_LOSES_ARGUMENT
        word, place = change.word.text, host.at(change.place)
        how = _of_loader(host, _ADDING).format(quoted(word))
        # An undo reads no spec.
        accept = "" if is_undo else f'; or accept the change with `options.boot_changes: ["{change.sign}{word}"]`'
        yield finding(code, place=place, word=word, source=change.source, accept=accept, how=how)
    if reasons := "; ".join(difference.after.unknown):
        yield finding(Code.NEXT_BOOT_UNKNOWN, place=host.hostname, reasons=reasons, how=_of_loader(host, _CHOOSING))

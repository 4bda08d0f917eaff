"""The next boot as an object: loader, entry, kernel, initramfs, and the command line word by word."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpustack.linux.cmdline import CommandLine, canonical

GPUSTACK = "gpustack"
"""The source of words that gpustack adds."""
# Words of the boot loader itself: GRUB's first word, the initrd of systemd-boot's entries, kernel-install's id, and the
# variable of Ubuntu's 10_linux that depends on the graphics mode (vt.handoff=1 in some releases, 7 in others).
_LOADERS_OWN = frozenset({"BOOT_IMAGE", "initrd", "systemd.machine_id", "$vt_handoff", "${vt_handoff}", "vt.handoff"})
_PIECE = re.compile(r"""\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"|(\s+)|([^'"\\\s]+|['"\\])""", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\}|\?)")


@dataclass(frozen=True, kw_only=True)
class BootWord:
    """A word of the command line.

    :ivar text: as the kernel gets it, without quotes around the word.
    :ivar source: the file and line that it comes from, or :data:`GPUSTACK`.
    """

    text: str
    source: str = ""

    @property
    def name(self) -> str:
        """The name of the parameter, as the kernel compares it."""
        return canonical(self.text[:1] + self.text[1:].partition("=")[0])

    @property
    def value(self) -> str | None:
        """The text after the first ``=``; None without one."""
        _, equals, value = self.text[1:].partition("=")
        return value if equals else None


@dataclass(frozen=True, kw_only=True)
class NextBoot:
    """One boot: that of the running system, or the next one.

    :ivar loader: ``grub``, ``systemd-boot``; None if unknown.
    :ivar entry: the title of the menu entry.
    :ivar why: why the loader starts this entry (``GRUB_DEFAULT=0``).
    :ivar place: the file that contains the entry.
    :ivar kernel: the kernel's release; None if unknown.
    :ivar initramfs: the path of the initramfs.
    :ivar words: the words of the command line; None if they are unknown.
    :ivar unknown: why the entry or its words are unknown.
    """

    loader: str | None = None
    entry: str = ""
    why: str = ""
    place: str = ""
    kernel: str | None = None
    initramfs: str | None = None
    words: tuple[BootWord, ...] | None = None
    unknown: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command line, for comparisons with ``/proc/cmdline`` and with a generated menu."""
        return " ".join(word.text for word in self.words or ())

    def to_dict(self) -> dict[str, object]:
        """The boot as plain data, for JSON."""
        return {
            **{name: getattr(self, name) for name in ("loader", "entry", "why", "kernel", "initramfs")},
            "words": None if self.words is None else [{"word": w.text, "source": w.source} for w in self.words],
            "unknown": list(self.unknown),
        }


def kernel_words(text: str, source: str = "") -> tuple[BootWord, ...]:
    """The words of a kernel's command line (``/proc/cmdline``), without those of the boot loader."""
    line = CommandLine(text=text)
    arguments = (*line.arguments, *(line.for_init or ()))
    texts = (a.name if a.value is None else f"{a.name}={a.value}" for a in arguments)
    return _without_loader(BootWord(text=text, source=source) for text in texts)


def menu_words(text: str, source: str = "") -> tuple[BootWord, ...]:
    """The words that GRUB makes of the arguments of its command ``linux``, without those of the boot loader.

    Quotes are removed as by GRUB's shell (``grub-core/script/yylex.l``). Variables stay: see :func:`variables`.
    """
    words: list[str] = []
    current: str | None = None
    for escaped, single, double, space, plain in _PIECE.findall(text):
        if space:
            words += [current] if current is not None else []
            current = None
        else:
            piece = escaped or single or re.sub(r'\\([\\"$])', r"\1", double) or plain
            current = (current or "") + piece
    words += [current] if current is not None else []
    return _without_loader(BootWord(text=word, source=source) for word in words if word)


def _without_loader(words: Iterable[BootWord]) -> tuple[BootWord, ...]:
    return tuple(word for word in words if word.name not in _LOADERS_OWN)


def variables(words: Iterable[BootWord]) -> tuple[str, ...]:
    """The variables of GRUB in words, whose values are unknown."""
    return tuple(dict.fromkeys(name for word in words for name in _VARIABLE.findall(word.text)))


def compared(before: Iterable[BootWord], after: Iterable[BootWord]) -> Iterator[tuple[str, BootWord]]:
    """The words that ``after`` lacks and adds, each with its sign; repetitions of a word don't count."""
    old, new = _by_name(before), _by_name(after)
    for name in dict.fromkeys((*old, *new)):
        ours, theirs = old.get(name, {}), new.get(name, {})
        if list(ours) == list(theirs):
            continue
        is_reordered = set(ours) == set(theirs)
        yield from (("-", word) for text, word in ours.items() if is_reordered or text not in theirs)
        yield from (("+", word) for text, word in theirs.items() if is_reordered or text not in ours)


def _by_name(words: Iterable[BootWord]) -> Mapping[str, dict[str | None, BootWord]]:
    """The words by name and value; of equal ones, the last counts."""
    by_name: dict[str, dict[str | None, BootWord]] = {}
    for word in words:
        values = by_name.setdefault(word.name, {})
        values.pop(word.value, None)
        values[word.value] = word
    return by_name

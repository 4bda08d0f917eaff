"""Read signs of trouble in kernel logs: of a host's ``dmesg``, a saved journal, or a guest's console.

The one reader of the collector's messages, of ``gpustack health`` and of the guest check. The patterns are data
(``gpustack/data/signs.jsonl``, written by ``tools/signs`` from the sources). A message is read in four steps:

1. The prefix of its log is removed (:func:`normalised`): levels, times, host and program, JSON.
2. Its words choose the patterns that can match. Most lines have none of these words.
3. A pattern matches the line, or the line with its continuations: a serial console cuts lines, and NVIDIA's driver and
   the firmware's error records print one message as several lines.
4. Later messages can end a sign, and a kernel that starts makes all earlier ones old.

Nothing here depends on the content but the number of patterns that are tried: each line tries those of its words, and
equal texts are tried once.
"""

import functools
import itertools
import json
import re
from typing import Any, Dict, Iterable, Iterator, List, Match, NamedTuple, Optional, Pattern, Sequence, Set, Tuple

from .kernel_log import TOKEN

Row = Dict[str, Any]

REFUSALS = ("legacy", "no-gsp", "unsupported", "firmware", "force-probe")
CAUSES = (*REFUSALS, "open-required", "bar-unplaced", "nouveau")
"""The kinds of events that explain why a driver does not start a GPU; a lost GPU does too, by these signs:"""
LOST = ("xid-", "power-state", "reset-failed")
FAILURES = ("init-failed", "probe-failed")
STARTS = ("init-failed", "firmware-failed", "probe-failed")
"""That a driver did not start a GPU or a controller of one. The first message has the reason."""
_STALLED = ("xid-109", "xid-119", "xid-120", "xid-143")
_WEAK = ("probe-failed", "power-state", "module-absent", "aer-uncorrected", *_STALLED)
_PAIRS = (("module-unbuilt", "module-absent"), ("dpc", "aer-uncorrected"))
_CHAINS = {name: own for own in (STARTS, LOST[1:], *_PAIRS, ("xid-79", *_STALLED)) for name in own}
"""The names of events of which the first at a place is the reason of the others; a weak one is no reason."""
_RECOVERED = {"aer-uncorrected", "dpc", "cper-fatal"}
"""The errors from which the kernel tries to recover a device. A port above it can report that this failed."""
CONSEQUENCES = ("compute-missing", "task-hung", "nvml-mismatch", "driver-absent", "containers-failed")
"""The signs that programs above the driver fail, of which any other failure is the cause."""

MOST_EVENTS = 1024
MOST_HARMLESS = 32768
"""The most events without a code: a kernel lists each function and bridge before any sign."""
MOST_PARTS = 8
"""The most lines of one message."""
_PART = 512
_CACHED = 4096
_NEAR = 24  # lines within which the parts of a message follow

_A = r"(?:PCI:)?((?:(?:0x)?[0-9a-fA-F]{4,8}:)?(?:0x)?[0-9a-fA-F]{1,2}:(?:0x)?[0-9a-fA-F]{1,2}(?:[.:][0-7])?)"
_GPU_DRIVERS = r"(?:amdgpu|radeon|xe|i915|nouveau|NovaCore|nova_core)"
_P = r"(?<![\w.])[\w.+-]{1,32} " + _A + r"(?::pcie[0-9]{1,4})?: "
_PLACEHOLDERS = {
    "<A>": _A,
    "<P>": _P,
    "<I>": r"(?:\biommu ivhd[0-9]{1,4}: |" + _P + ")",  # an IOMMU of AMD speaks for itself, or for a device
    "<G>": r"(?:(?<![\w.])" + _GPU_DRIVERS + "(?: " + _A + r")?: |\[drm(?::[\w.]{1,80})?(?: \[\w{1,20}\])?\]? ?)"
    r"(?:(?:\w{2,16}|\[drm[^\]]{0,100}\]{1,2}|\*ERROR\*|\*WARNING\*|(?:Tile[0-9]{1,2}: ?)?GT[0-9]{1,2}):? ){0,4}"
    r"(?:\{[0-9]{1,20}\} ?)?",  # amdgpu numbers the events of RAS
    "<N>": r"(?<![\w.])nouveau " + _A + r": (?:\w{2,16}: ){0,2}",
    "<GM>": r"'?(?P<name>nvidia(?:[-_](?:drm|modeset|uvm|peermem|vgpu[-_]vfio|current[\w-]{0,20}|fs))?"
    r"|nouveau|amdgpu|radeon|i915|xe|habanalabs|vfio[\w-]{0,24}|nvgrace[\w-]{0,20})'?",
}

_VENDORS = {"nvidia": "10de", "nouveau": "10de", "amdgpu": "1002", "radeon": "1002", "i915": "8086", "xe": "8086"}
_MODULE = re.compile(r"\b(?:" + "|".join(_VENDORS) + ")(?![a-z0-9])")


class Event(NamedTuple):
    """One sign of a log, with all of its messages.

    :ivar sign: id of the table.
    :ivar address: of the function or port, ``0000:65:00.0``; ``None`` if no message has one.
    :ivar message: the last message, without the prefix of its log.
    :ivar code: of the finding; ``None`` for harmless signs.
    :ivar kind: the kind of event for other modules; ``sign`` for most.
    :ivar values: named parts of the message.
    :ivar first: time of the first message as the log has it; ``last``: of the last one.
    :ivar earlier: whether a kernel started after the last message.
    """

    sign: str
    address: Optional[str]
    message: str
    code: Optional[str] = None
    severity: Optional[str] = None
    scope: str = "function"
    kind: str = "sign"
    values: Dict[str, str] = {}
    first: Optional[str] = None
    last: Optional[str] = None
    count: int = 1  # type: ignore[assignment]
    earlier: bool = False

    @property
    def name(self) -> str:
        """Its kind; the sign of a plain one."""
        return self.sign if self.kind == "sign" else self.kind

    def is_of_other(self, *, speaker: bool = False) -> bool:
        """Whether a driver failed, or speaks, that serves no GPU and no port: a GPU's slot has other functions too."""
        speaks = re.match(r"([\w.+-]{1,32}) " + _A + "(?::pcie[0-9]{1,4})?: ", self.message) if speaker else None
        name = self.values["driver"] if self.kind == "probe-failed" else speaks.group(1) if speaks else ""
        return bool(name) and not re.fullmatch(_PLACEHOLDERS["<GM>"] + "|pci|pcieport|pciehp|" + _GPU_DRIVERS, name)


def is_of_absent(sign: str, text: str, vendors: Set[str]) -> bool:
    """Whether a message is about the module of a vendor without a GPU here: images list modules for many cards."""
    named = "nvidia" if sign in CONSEQUENCES[2:] else text if sign.startswith("module-") else ""
    return _vendor(named) not in (None, *vendors)


def _vendor(text: str) -> Optional[str]:
    """The vendor of the driver or module that a message names first."""
    module = _MODULE.search(text.replace("NVRM", "nvidia"))
    return _VENDORS[module.group()] if module else None


def effects(failures: Iterable[Tuple[Optional[str], str, Optional[str]]]) -> Set[Tuple[Optional[str], str]]:
    """The failures that follow from another one: a GPU that did not start, or is lost, has one reason.

    :param failures: address, name and severity, the oldest first.
    """
    failures = list(failures)
    errors = [(a, n) for a, n, severity in failures if n in FAILURES or (severity == "error" and n in _CHAINS)]
    reasons: Dict[Tuple[Optional[str], Tuple[str, ...]], str] = {}
    for address, name in sorted(errors, key=lambda one: one[1] in _WEAK):
        reasons.setdefault((address, _CHAINS[name]), name)
    later = {(address, name) for address, name in errors if reasons[address, _CHAINS[name]] not in (name, *_WEAK)}
    followed = "" if _RECOVERED.isdisjoint(name for _, name, _ in failures) else "recovery-failed"
    return later | {(address, name) for address, name, _ in failures if name == followed}


def full_address(text: Optional[str]) -> Optional[str]:
    """``0000:00:05.0`` for ``00:05.0``, ``0000:00:05`` or ``0x00:0x05.0``."""
    if text is None:
        return None
    head, _dot, function = text.lower().replace("0x", "").partition(".")
    parts = head.split(":")
    if not function and len(parts) == 4:
        function = parts.pop()
    domain, bus, device = parts if len(parts) == 3 else ["0", *parts]
    return "{:04x}:{:02x}:{:02x}.{}".format(int(domain, 16), int(bus, 16), int(device, 16), function or "0")


_ISO = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
    r"(?: ?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2}))?"
)
_NAME = r"(?:[^\W\d_]{1,6}\.?|1?[0-9][\u6708\uc6d4])"  # of a month or a weekday, in any language
_DAY = _NAME + r" [ 0-9]?[0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_STAMP = (
    r"\[<? *\+?[0-9]{1,9}\.[0-9]{1,9}(?: <[ 0-9.*]{3,24})? *>?\](?: ?\[ *[TC][0-9]{1,8}\])?"
    r"|\[(?:" + _NAME + " )?" + _NAME + r" ?[ 0-9]?[0-9] [0-9:]{5,8}(?: [0-9]{4})?(?: <[ 0-9.]{3,24}>)?\]"
    r"|\[" + _ISO + r"\]"
)
_SYSLOG = re.compile(
    "(?:<[0-9]{1,3}>(?:1 )?)?(?P<time>(?:"
    + _NAME
    + " )?(?:"
    + _ISO.replace("[.,]", "[.]")
    + "|"
    + _DAY
    + r"|[0-9]{10}\.[0-9]{6})(?: [A-Z]{3,5})?) "
    r"(?:[\w.-]{1,64} |(?=kernel: ))(?P<program>\(?[A-Za-z][\w./@-]{0,47}\)?)(?:\[(?P<pid>[0-9]{1,10})\])?"
    r"(?:: | (?:[0-9]{1,10}|-) [\w-]{1,32} (?:-|\[[^\]]{0,200}\]) )"
)
_LEVEL = re.compile(
    r"<[0-9]{1,3}>|[a-z0-9]{2,8} *:[a-z]{3,8} *: ?(?=\[|[0-9])|[0-9]{1,3},[0-9]{1,20},[0-9]{1,20},[^;]{0,80};"
    r"|(?:[\w.:-]{1,64}: )?(?:kern|user|daemon): {1,4}[a-z]{3,8}: (?=\[)"  # of Talos: its node, facility, level
)
_TIME = re.compile("(?P<time>" + _STAMP + "|" + _ISO + r"):? ?(?:[\w.-]{1,64} (?P<program>kernel): )?")
_INSIDE = re.compile(r"(?<=.)\[ *[0-9]{1,9}\.[0-9]{1,9}\] ")
_PROGRAM = re.compile(r"(?P<program>[a-zA-Z][\w./@-]{1,47})\[[0-9]{1,10}\]: ")
_MEMBER = re.compile(r' *(?:MESSAGE=|"(?:MESSAGE|msg)" ?: ?")(.*?)"?,?$')  # -o verbose, json-pretty, dmesg --json
_BOOT_MARK = re.compile(r"-- (?:Boot [0-9a-f]{32}|Reboot) --")
# Programs whose own messages count; another program only quotes.
_SPEAKERS = re.compile(
    r"kernel|cloud-init|systemd-modules-load|systemd-udevd|\(udev-worker\)|modprobe|dkms[\w.]*|akmods(?:build)?"
    r"|containerd|crio|dockerd?|podman|kubelet|k3s|rke2|k0s|nvidia-gridd|(?:nv-|nvidia-)?fabric.{0,20}"
)
_GUEST = "gpustack guest check: "


class LogLine(NamedTuple):
    """One line of a log without its prefix.

    :ivar own: whether it had a prefix, so that it starts a message.
    """

    text: str
    time: Optional[str] = None
    own: bool = False
    boot: bool = False


def normalised(lines: Iterable[str]) -> Iterator[LogLine]:
    """The lines without the prefixes of ``dmesg``, journals and syslog; without those of other programs."""
    boot: Any = None
    for line in lines:
        if line.startswith("{") and '"MESSAGE"' in line:
            record = _json(line)
            if record is not None:
                text, time, now = record
                yield LogLine(text, time, True, boot not in (None, now))
                boot = now
                continue
        entry = _plain(line)
        inner = None if entry.own else _INSIDE.search(line)
        if inner:  # a program's line without an end precedes the kernel's
            yield LogLine(line[: inner.start()])
            entry = _plain(line[inner.start() :])
        yield entry


def _json(line: str) -> Optional[Tuple[str, Optional[str], Any]]:
    """Message, time and boot of a record of ``journalctl -o json``; the message is empty if it does not count."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    message, program = record.get("MESSAGE"), record.get("SYSLOG_IDENTIFIER", "kernel")
    if isinstance(message, list):
        message = bytes(n for n in message if isinstance(n, int) and 0 <= n < 256).decode("utf-8", "replace")
    if not isinstance(message, str) or not isinstance(program, str) or not _SPEAKERS.fullmatch(program):
        message = ""
    time = record.get("__REALTIME_TIMESTAMP") or record.get("_SOURCE_MONOTONIC_TIMESTAMP")
    text = message if program == "kernel" else program + ": " + message
    return " ".join(text.split()), time if isinstance(time, str) else None, record.get("_BOOT_ID")


def _plain(line: str) -> LogLine:
    """A line without its prefix; its text is empty if another program wrote it."""
    member = _MEMBER.match(line)
    line = (member.group(1) if member else line.lstrip("\ufffd\ufeff")).replace("\\x0a", " ")  # as /dev/kmsg has it
    if line.startswith("-- ") and _BOOT_MARK.match(line):
        return LogLine("", None, True, True)
    match = _SYSLOG.match(line)
    at, time, program = (match.end(), match.group("time"), match.group("program")) if match else (0, None, None)
    for _layer in range(2):  # syslog keeps the kernel's own time; -x puts levels before it
        level = _LEVEL.match(line, at)
        at = level.end() if level else at
        stamp = _TIME.match(line, at)
        if not stamp:
            break
        at, program = stamp.end(), stamp.group("program") or program
        time = time or stamp.group("time").strip("[< >]").partition(" <")[0]
    text = line[at:] if at else line
    inner = _PROGRAM.match(text) if program in (None, "kernel") else None
    if inner:
        program, text = inner.group("program"), text[inner.end() :]
    if program and program != "kernel":
        text = program + ": " + text if _SPEAKERS.fullmatch(program) or _GUEST in text else ""
    return LogLine(text, time, member is not None or (at > 0 and line[:1] not in " \t"))


class SignTable:
    """The signs, ready for reading.

    :ivar searches: the number of searches so far, for tests of growth.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in rows if row.get("pattern") and row.get("kind") != "join"]
        self.numbers = {row["id"]: row for row in rows if "number" in row and not row.get("pattern")}
        self.codes = {row["code"] for row in rows if row.get("code")}
        self.searches = 0
        self._by_word: Dict[str, List[Row]] = {}
        for row in self.rows:
            self._by_word.setdefault(row["words"][0], []).append(row)
        self._join = re.compile("|".join(row["pattern"] for row in rows if row.get("kind") == "join") or r"(?!)")

    def events(self, messages: Iterable[str]) -> List[Event]:
        """The signs of a log's lines, in their order of appearance; ended ones are left out."""
        return _Reading(self, list(normalised(messages))).events()

    def match(self, texts: Sequence[str], words: Set[str]) -> Optional[Tuple[Row, Match[str], str]]:
        """The row that fits the first of these texts best, a line and its continuations.

        :param words: the words of all texts.
        """
        for text in texts:
            tried = ((row, self.search(row, text)) for row in self._candidates(text, words))
            found = [(row, match) for row, match in tried if match and match.start() < len(texts[0])]
            if found:
                return (*max(found, key=lambda one: _rank(*one)), text)
        return None

    def _candidates(self, text: str, words: Set[str]) -> Iterator[Row]:
        rows = (row for word in words.intersection(self._by_word) for row in self._by_word[word])
        return (row for row in rows if all(each in text for each in row["words"][1:]))

    def mentions(self, line: bytes) -> bool:
        """Whether a line can have a sign or a guest's report, be a part of a longer message, or mark a boot."""
        text = line.decode("utf-8", "replace")
        is_part = self._join.search(text) or _BOOT_MARK.search(text) or _GUEST in text
        return bool(is_part) or any(True for _ in self._candidates(text, set(TOKEN.findall(text))))

    def search(self, row: Row, text: str) -> Optional[Match[str]]:
        self.searches += 1
        return _pattern(row["pattern"]).search(text, 0, MOST_PARTS * _PART)

    def can_match(self, words: Set[str]) -> bool:
        """Whether a pattern has one of these words."""
        return not words.isdisjoint(self._by_word)

    def joint(self, text: str) -> Optional[str]:
        """The start that a part of a message of several lines has; ``None`` for other lines."""
        match = self._join.match(text.lstrip())
        return match.group().rstrip() if match else None

    def is_command_line(self, text: str) -> bool:
        """Whether the kernel prints its command line, as it does when it starts."""
        return any(_pattern(row["pattern"]).search(text) for row in self.rows if row.get("kind") == "command-line")


@functools.lru_cache(maxsize=None)
def _pattern(text: str) -> Pattern[str]:
    for name, part in _PLACEHOLDERS.items():
        text = text.replace(name, part)
    return re.compile(text)


def _rank(row: Row, match: Match[str]) -> Tuple[int, bool, str]:
    """The longest match names the message best; of equal ones, a harmless one."""
    return match.end() - match.start(), "code" not in row, row["id"]


class _Reading:
    """The reading of one log."""

    def __init__(self, table: SignTable, lines: List[LogLine]) -> None:
        self._table = table
        self._joint = functools.lru_cache(_CACHED)(table.joint)
        self._lines = lines
        self._events: Dict[Tuple[Any, ...], Event] = {}
        self._known: Dict[Tuple[str, ...], Any] = {}
        self._present: Set[str] = set()
        self._signs = 0
        self._unplaced: List[Tuple[Any, ...]] = []
        self._words = [set(TOKEN.findall(line.text)) for line in lines]

    def events(self) -> List[Event]:
        done = -1
        for number, line in enumerate(self._lines):
            if line.boot:
                self._boot()
            if not (self._table.can_match(self._words[number]) or self._cut(number)):
                continue
            for start in range(max(done + 1, self._start(number)), number + 1):
                done = start
                self._read(start)
        found = list(self._events.values())
        placed = {(event.code, event.earlier) for event in found if event.address and event.code}
        # The same failure in a message without address is no second one.
        return [event for event in found if event.address or (event.code, event.earlier) not in placed]

    def _cut(self, number: int) -> bool:
        """Whether the end of the line before and the start of this one together are a word of the table."""
        line = self._lines[number]
        if number == 0 or line.own or not line.text:
            return False
        return self._table.can_match(set(TOKEN.findall(self._lines[number - 1].text[-32:] + line.text[:32])))

    def _start(self, number: int) -> int:
        """The line with which the message of a line can begin."""
        start = number
        while start > 0 and number - start < 4 and not self._lines[start].own and self._lines[start - 1].text:
            start -= 1
        joint = self._joint(self._lines[number].text)
        return start if joint is None else max(0, number - 1 if start == number else start)

    def _read(self, start: int) -> None:
        texts, words = self._texts(start)
        if not texts[0]:
            return
        key = tuple(texts)
        found = self._known[key] if key in self._known else self._table.match(texts, words)
        if len(self._known) < _CACHED:
            self._known[key] = found
        # If the next line has the same sign alone, this one ends before it.
        if found and (found[2] == texts[0] or not self._table.search(found[0], self._lines[start + 1].text)):
            self._add(start, *found)

    def _texts(self, start: int) -> Tuple[List[str], Set[str]]:
        """The text of a line, and of it with its continuations: of one message, cut anywhere, or between words."""
        text = self._lines[start].text[: MOST_PARTS * _PART]
        texts, words = [text], set(self._words[start])
        joint = self._joint(text)
        near = self._lines[start + 1 : start + _NEAR]
        parts = [] if joint is None else [line.text.strip() for line in near if self._joint(line.text) == joint]
        wrapped = list(itertools.takewhile(lambda line: not line.own and line.text, near))
        candidates = [(" ", parts)] if parts else []
        if wrapped:
            pieces = [line.text for line in wrapped] if joint is None else self._pieces(near, joint)
            candidates += [("", pieces), (" ", pieces)]
        for glue, of_message in candidates:
            joined = glue.join([text, *(part[:_PART] for part in of_message[:MOST_PARTS])])
            texts.append(joined[: MOST_PARTS * _PART])
            words.update(TOKEN.findall(texts[-1]))
        return texts, words

    def _pieces(self, near: Sequence[LogLine], joint: str) -> List[str]:
        """The parts of a message of several lines, each of which a console has cut."""
        return [
            " " + line.text if line.own else line.text
            for line in near
            if line.text and (self._joint(line.text) == joint or not line.own)
        ]

    def _is_start(self, number: int) -> bool:
        """Whether a kernel printed its version; programs print it too, without a time and a command line after it."""
        line, near = self._lines[number], self._lines[number + 1 : number + _NEAR]
        return line.text.startswith("Linux") if line.own else any(self._table.is_command_line(n.text) for n in near)

    def _boot(self) -> None:
        for key in [key for key in self._events if key[-1] != "earlier"]:
            self._events[(*key, "earlier")] = self._events.pop(key)._replace(earlier=True)
        self._signs = sum(event.code is not None for event in self._events.values())
        self._unplaced = []

    def _add(self, number: int, row: Row, match: Match[str], text: str) -> None:
        kind, time = row.get("kind", "sign"), self._lines[number].time
        if kind == "boot":
            if not self._is_start(number):
                return
            self._boot()
        named = match.re.groupindex
        unnamed = [part for number, part in enumerate(match.groups(), 1) if number not in named.values() and part]
        values = {name: (part or "").strip() for name, part in match.groupdict().items()}
        if kind in ("xid", "sxid"):  # the text of a message judges better than its number
            numbers = self._table.numbers
            known = numbers.get("{}-{}".format(kind, int(values["number"]))) or numbers[kind + "-unknown"]
            row, kind = dict(row, id=known["id"]) if "code" in row else known, "sign"
        address = full_address(unnamed[-1]) if unnamed else None
        if not self._present.isdisjoint(row.get("ends", ())):
            for key in [key for key, event in self._events.items() if _ends(row, address, values, event)]:
                self._signs -= self._events.pop(key).code is not None
        message = text[match.start() : match.start() + _PART]
        if "number" in values:
            message = "{} {}".format("SXid" if "SXid" in message else "Xid", text[match.start("number") :][:_PART])
        event = Event(
            row["id"], address, message, row.get("code"), row.get("severity"), row.get("scope", "function"), kind,
            values, time, time,
        )  # fmt: skip
        key = (
            row["id"],
            row.get("action"),
            address,
            *(values.get(name) for name in ("bar", "file", "card", "number", "product", "name")),
        )
        if address and kind in FAILURES:
            self._place(address, _vendor(message))
        before = self._events.get(key)
        if before is not None:
            event = event._replace(first=before.first, count=before.count + 1)
            if event.name in STARTS and (before.severity == "error" or event.severity != "error"):
                event = event._replace(message=before.message, severity=before.severity)
        elif self._signs >= MOST_EVENTS if event.code else len(self._events) >= MOST_HARMLESS:
            return
        elif address is None and event.name in STARTS:
            self._unplaced.append(key)
        self._signs += before is None and event.code is not None
        self._events[key] = event
        self._present.add(event.sign)

    def _place(self, address: str, vendor: Optional[str]) -> None:
        """Give the reasons of a failed start that have no address that of the failure that follows them."""
        for key in [key for key in self._unplaced if key in self._events]:
            if vendor and _vendor(self._events[key].message) == vendor:
                self._unplaced.remove(key)
                reason = self._events.pop(key)._replace(address=address)
                self._events.setdefault((*key[:2], address, *key[3:]), reason)


def _ends(row: Row, address: Optional[str], values: Dict[str, str], event: Event) -> bool:
    """Whether a message ends a sign: of the same device, and of the same BAR if it names one."""
    ended = event.sign in row.get("ends", ()) and not event.earlier
    same = address in (None, event.address) or event.address is None
    return ended and same and values.get("bar") in (None, event.values.get("bar"))

"""Messages made from the patterns of the table of signs, and the forms in which logs keep messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ADDRESS = "0000:65:00.0"
TIME = "2026-11-24T05:54:02"
PLACEHOLDERS = {
    "<P>": f"vfio-pci {ADDRESS}: ",
    "<G>": f"amdgpu {ADDRESS}: [drm] *ERROR* ",
    "<A>": ADDRESS,
    "<I>": "iommu ivhd0: ",
    "<N>": f"nouveau {ADDRESS}: fifo: ",
    "<GM>": "nvidia",
}


def sample(pattern: str) -> str:
    """A text that a pattern of the table matches: the shortest, with real addresses and names."""
    if named := re.match(r"\(\?=\(\?P<driver>(\w+)\|.*?\)(?:\\b| )\)", pattern):  # the driver before the address
        return re.sub(r"^\S+", named[1], sample(pattern[named.end() :]))
    parts = re.split("(<[APGNI]M?>)", pattern.replace("(?:<A>)?", "<A>").replace("(?:<A>: )?", "<A>: "))
    texts = [PLACEHOLDERS.get(part) or "".join(_texts(_parsed(part))) for part in _balanced(parts)]
    return "".join(texts) + " end"


def _balanced(parts: list[str]) -> list[str]:
    """The parts, joined where a placeholder is inside of a group."""
    joined: list[str] = []
    for part in parts:
        if joined and not _complete(joined[-1]):
            joined[-1] += re.escape(PLACEHOLDERS.get(part, "")) or part
        else:
            joined.append(part)
    return joined


def _complete(part: str) -> bool:
    try:
        re.compile(part)
    except re.error:
        return False
    return True


def _parsed(part: str) -> Any:
    return parser.parse(part)


def _texts(parsed: Any) -> Iterator[str]:
    for kind, value in parsed:
        if kind is kinds.LITERAL:
            yield chr(value)
        elif kind is kinds.IN:
            yield _of_set(value)
        elif kind is kinds.NOT_LITERAL:
            yield "mem"
        elif kind is kinds.ANY:
            yield "+"
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            least, most, inner = value
            repeated = least or int(most > 1)
            any_text = inner[0][0] is kinds.ANY
            yield " x " if any_text else "".join("".join(_texts(inner)) for _ in range(repeated))
        elif kind is kinds.SUBPATTERN:
            yield from _texts(value[-1])
        elif kind is kinds.BRANCH:
            yield from _texts(value[1][0])


def _of_set(value: Any) -> str:
    kind, content = value[0]
    if kind is kinds.RANGE:
        return chr(content[0])
    if kind is kinds.CATEGORY:
        return {kinds.CATEGORY_SPACE: " ", kinds.CATEGORY_DIGIT: "1", kinds.CATEGORY_NOT_WORD: " "}.get(content, "x")
    return "x" if kind is kinds.NEGATE else chr(content)


def _journal(message: str, number: int) -> str:
    record = {
        "MESSAGE": message,
        "SYSLOG_IDENTIFIER": "kernel",
        "_TRANSPORT": "kernel",
        "PRIORITY": "3",
        "__REALTIME_TIMESTAMP": str(1764000000000000 + number),
        "_BOOT_ID": "5e0c",
    }
    return json.dumps(record)


FORMS: Mapping[str, Callable[[str, int], str]] = {
    "plain": lambda message, number: message,
    "dmesg": lambda message, number: f"[{number + 12:5}.345678] {message}",
    "dmesg -T": lambda message, number: f"[Tue Nov 24 05:54:{number % 60:02} 2026] {message}",
    "dmesg -x": lambda message, number: f"kern  :err   : [{number + 12:5}.345678] {message}",
    "dmesg --time-format iso": lambda message, number: f"{TIME},123456+00:00 {message}",
    "levels": lambda message, number: f"<3>[{number + 12:5}.345678] {message}",
    "caller": lambda message, number: f"[{number + 12:5}.345678][ T{number + 100}] {message}",
    "kmsg": lambda message, number: f"3,{number},{number + 12345678},-,caller=T1;{message}",
    "journal short": lambda message, number: f"Nov 24 05:54:02 gpu01 kernel: {message}",
    "journal short-iso": lambda message, number: f"{TIME}+00:00 gpu01 kernel: {message}",
    "journal short-precise": lambda message, number: f"Nov 24 05:54:02.123456 gpu01 kernel: {message}",
    "journal short-full": lambda message, number: f"Tue 2026-11-24 05:54:02 UTC gpu01 kernel: {message}",
    "journal short-monotonic": lambda message, number: f"[{number + 12:5}.345678] gpu01 kernel: {message}",
    "journal json": _journal,
    "syslog": lambda message, number: f"Nov 24 05:54:02 gpu01 kernel: [{number + 12:5}.345678] {message}",
    "RFC 5424": lambda message, number: f"<3>1 {TIME}.123Z gpu01 kernel - - - {message}",
    "colours": lambda message, number: f"\x1b[32m[{number + 12:5}.345678] \x1b[0m\x1b[1m{message}\x1b[0m\r",
}

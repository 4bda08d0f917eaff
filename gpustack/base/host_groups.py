"""Groups of equal hosts: each is shown once, under a pattern of Ansible's inventories that names its hosts. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from gpustack.base import hostnames
from gpustack.base.text import counted

# The number of a host in its row is the last one before the domain: rack1-gpu07.dc2.example.org.
_NUMBERED = re.compile(r"(?P<head>[^.]*?)(?P<digits>[0-9]{1,9})(?P<tail>[^.0-9]*(?:\..*)?)", re.DOTALL)
_RUNS = re.compile(r"([0-9]+)", re.ASCII)
# A UUID, or a machine's id: 32 hexadecimal digits.
_IDENTIFIER = re.compile(r"\b(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{32})\b")


@dataclass(frozen=True, kw_only=True)
class HostGroup:
    """Hosts with the same text, except for their own names and identifiers.

    :ivar hosts: their names, in their first order.
    :ivar text: the text of all of them, with the pattern in place of a name.
    """

    hosts: tuple[str, ...]
    text: str

    @property
    def pattern(self) -> str:
        """The names as one pattern, for HOST and for Ansible's ``--limit``."""
        return pattern(self.hosts)


def host_groups(
    texts: Iterable[tuple[str, str]],
    keys: Iterable[str] | None = None,
    kinds: Iterable[object] | None = None,
    *,
    each: bool = False,
) -> list[HostGroup]:
    """The groups of hosts with equal texts, in the order of their first hosts.

    UUIDs and machine ids alone do not split a group; they are named below its text.

    :param texts: the text of each host, with the host's name; without a name, a text is compared as it is.
    :param keys: longer texts to compare, in the same order; None for ``texts``.
    :param kinds: of each host, an object that hosts with equal texts share; None to compare all texts.
    :param each: whether each host is a group of its own.
    """
    members: dict[str, list[tuple[str, str, str]]] = {}
    compared: dict[object, str] = {}
    pairs = list(texts)
    longer = [text for _, text in pairs] if keys is None else keys
    for (host, text), key, kind in zip(pairs, longer, kinds or range(len(pairs)), strict=True):
        if kind not in compared:
            compared[kind] = (host if each else "") or _IDENTIFIER.sub("\0id", impersonal(key, host))
        members.setdefault((host if each else "") or compared[kind], []).append((host, text, key))
    return [HostGroup(hosts=tuple(host for host, *_ in group), text=_shown(group)) for group in members.values()]


def patterns_of(groups: Iterable[HostGroup]) -> Mapping[str, str]:
    """The pattern of the group of each host, for data."""
    return {host: shown for group in groups for shown in (group.pattern,) for host in group.hosts}


def impersonal(text: str, host: str, name: str = "\0") -> str:
    """A text with another name instead of the host's own, which may be a part of a longer one: ``vg_gpu01-root``."""
    short = hostnames.head(host)
    if not short or short not in text:
        return text
    return re.sub(rf"(?<![^\W_])(?:{re.escape(host)}|{re.escape(short)})(?![^\W_])", lambda _: name, text)


def _shown(group: list[tuple[str, str, str]]) -> str:
    host, text, _ = group[0]
    if len(group) == 1:
        return text
    names = pattern(host for host, *_ in group)
    heading = f"{names} ({len(group)} hosts)"
    first_line, *others = impersonal(text, host, names).split("\n")
    named = first_line.replace(names, heading, 1) if names in first_line else f"{heading}:\n{first_line}"
    shown = "\n".join((named, *others))
    identifiers = zip(*(_IDENTIFIER.findall(key) for _, _, key in group), strict=True)
    own = dict.fromkeys(same[0] for same in identifiers if len({*same}) > 1)
    return shown + (f"\n\n  different on each host, shown of {host}: {', '.join(own)}" if own else "")


def pattern(names: Iterable[str]) -> str:
    """The names as one pattern: ``gpu[01:40],storage``."""
    return ",".join(fold(names))


def total(things: Mapping[str, int], states: Mapping[str, int]) -> str:
    """The last line of a text about several hosts: ``Total: 40 hosts, 80 GPUs; 3 to change, 0 blocked``.

    :param things: numbers by the singular of their nouns.
    """
    parts = ", ".join(counted(number, noun) for noun, number in things.items())
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    return f"Total: {parts}" + (f"; {counts}" if counts else "")


def fold(names: Iterable[str]) -> list[str]:
    """Host patterns for exactly these names, consecutive ones as ranges, in natural order.

    >>> fold(["gpu02", "gpu01", "gpu03", "gpu7.example.org", "storage"])
    ['gpu[01:03]', 'gpu7.example.org', 'storage']
    """
    unique = set(names)
    numbered = {name: match for name in unique if (match := _NUMBERED.fullmatch(name))}
    padded = {_row(match) for match in numbered.values() if re.match(r"0\d", match["digits"])}
    rows: dict[tuple[str, str, int], set[int]] = {}
    for match in numbered.values():
        row = _row(match)
        rows.setdefault(row if row in padded else (*row[:2], 0), set()).add(int(match["digits"]))
    patterns = [pattern for row, numbers in rows.items() for pattern in _ranges(row, numbers)]
    return sorted([*(unique - numbered.keys()), *patterns], key=natural)


def natural(name: str) -> tuple[tuple[int, str, int], ...]:
    """A sort key: ``gpu9`` before ``gpu10``, ranges at the position of their first host."""
    parts = (part for part in _RUNS.split(name.replace("[", "")) if part)
    numbered = ((0, "", int(part[:18])) if part[0].isdecimal() else (1, part, 0) for part in parts)
    return (*numbered, (2, name, 0))


def _row(match: re.Match[str]) -> tuple[str, str, int]:
    return match["head"], match["tail"], len(match["digits"])


def _ranges(row: tuple[str, str, int], numbers: set[int]) -> Iterator[str]:
    head, tail, width = row
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        digits = [str(number).zfill(width) for _, number in run]
        yield f"{head}{digits[0]}{tail}" if len(digits) == 1 else f"{head}[{digits[0]}:{digits[-1]}]{tail}"

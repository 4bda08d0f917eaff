"""Findings: facts to report, each with a stable code, a severity, a place, a message and a remedy.

The definitions are data (``gpustack/data/findings/*.toml``), shared by the code, the reports and the catalogue in the
docs. Code ranges: GPU0xx a device and its readiness, GPU1xx and GPU216 to GPU259 a host's boot configuration and plan,
GPU2xx verification, GPU500 to GPU519 verdicts on GPUs, GPU3xx and GPU530 to GPU569 a Nova configuration, GPU4xx
flavors, otherwise GPU5xx clean-up, GPU6xx maintenance of a host, GPU7xx and GPU900 GPUs in service, GPU830 to GPU844
hosts of projects, otherwise GPU8xx and GPU9xx the guest: drivers, images, firmware, networks.
"""

import enum
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.base.codes import Code as Code
from gpustack.base.files import data_dir, data_table
from gpustack.base.host_groups import fold, impersonal, pattern
from gpustack.base.text import printable, quoted


class Severity(enum.StrEnum):
    """The severity of a finding; ``error`` blocks the action that it concerns."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error, for comparisons."""
        return list(Severity).index(self)


class Basis(enum.StrEnum):
    """Nova's reaction to a configuration, as the reason of a finding."""

    REFUSED = "refused"
    """A service of Nova stops, or raises an exception when it uses the value."""
    NO_EFFECT = "no-effect"
    """Nova ignores the value."""
    ADVICE = "advice"
    """Nova accepts the value."""


_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHOWN_HOSTS = 8
_SHOWN_PLACES = 4  # per host, if there are several hosts


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a finding's code.

    :ivar basis: Nova's reaction, for findings about Nova's configuration; else None.
    """

    code: Code
    title: str
    severity: Severity
    message: str
    remedy: str
    explanation: str
    source: str = ""
    basis: Basis | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding about one place (``gpu01 0000:88:00.0``, ``nova.conf:12``)."""

    code: Code
    severity: Severity
    place: str
    message: str
    remedy: str

    def __post_init__(self) -> None:
        """Keep each text on one line: a line break in a host's kernel argument would begin a line of a report."""
        for name in ("place", "message", "remedy"):
            object.__setattr__(self, name, printable(getattr(self, name), keep=""))

    def to_dict(self) -> dict[str, str]:
        """The finding as plain data for JSON."""
        return {
            "code": self.code.value,
            "severity": self.severity.value,
            "place": self.place,
            "message": self.message,
            "remedy": self.remedy,
            **({"basis": basis.value} if (basis := definitions()[self.code].basis) else {}),
        }

    def __str__(self) -> str:
        return f"{self.severity.upper()} {self.code} {self.place}: {self.message}\n  → {self.remedy}"


@functools.cache
def definitions() -> Mapping[Code, Definition]:
    """All definitions, in the order of the codes."""
    catalogue: dict[Code, Definition] = {}
    for path in sorted(data_dir("findings").glob("*.toml")):
        for number, entry in data_table(f"findings/{path.name}").items():
            code = Code(number)
            if code in catalogue:
                raise ValueError(f"{path}: {code} is defined twice")
            basis = Basis(entry["basis"]) if "basis" in entry else None
            catalogue[code] = Definition(
                code=code, **{**entry, "severity": Severity(entry["severity"]), "basis": basis}
            )
    return dict(sorted(catalogue.items()))


def finding(code: Code, *, place: str, severity: Severity | None = None, **values: object) -> Finding:
    """Create a finding from its definition.

    :param code: the stable code, for example ``Code.NO_IOMMU_GROUP``.
    :param place: the host, function, or file and line that it concerns.
    :param severity: overrides the severity of the definition.
    :param values: values for the placeholders in the definition's message and remedy.
    :raises KeyError: when a placeholder has no value.
    """
    definition = definitions()[code]
    return Finding(
        code=code,
        severity=severity or definition.severity,
        place=place,
        message=definition.message.format_map(values),
        remedy=_remedy(definition.remedy, values),
    )


def _remedy(template: str, values: Mapping[str, object]) -> str:
    """A remedy with its values. Those in commands are quoted for a shell: hosts, databases and clouds name them."""
    parts = template.split("`")
    commands = {number for number, part in enumerate(parts) if number % 2 and " " in part and '"' not in part}
    words = {name: quoted(value) for name, value in values.items()} if commands else values
    return "`".join(part.format_map(words if number in commands else values) for number, part in enumerate(parts))


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The highest severity among ``findings``, or None when there are none."""
    return max((f.severity for f in findings), key=lambda s: s.rank, default=None)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that block an action."""
    return [f for f in findings if f.severity is Severity.ERROR]


def once(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once; of one with several severities, the most severe."""
    equal = by_key(((f.code, f.place, f.message, f.remedy), f) for f in findings)
    return [max(same, key=lambda f: f.severity.rank) for same in equal.values()]


def merged(findings: Iterable[Finding]) -> Mapping[tuple[Severity, Code, str], Mapping[str, Sequence[str]]]:
    """The places of each message, by severity, code and remedy; most severe first."""
    by_remedy: dict[tuple[Severity, Code, str], dict[str, dict[str, str]]] = {}
    for finding in sorted(findings, key=lambda f: (-f.severity.rank, f.code)):
        messages = by_remedy.setdefault((finding.severity, finding.code, finding.remedy), {})
        host = finding.place.partition(" ")[0]
        messages.setdefault(impersonal(finding.message, host), {})[finding.place] = finding.message
    return {key: {_of_all(places): list(places) for places in messages.values()} for key, messages in by_remedy.items()}


def _of_all(messages: Mapping[str, str]) -> str:
    """The message of several places, which differs in the names of hosts at most."""
    place, message = next(iter(messages.items()))
    if len({*messages.values()}) == 1:
        return message
    hosts = (other.partition(" ")[0] for other in messages)
    return impersonal(message, place.partition(" ")[0], pattern(hosts))


def report_lines(findings: Iterable[Finding]) -> Iterator[list[str]]:
    """Findings as text lines, most severe first: each message once with all its places, and each remedy once.

    :returns: for each remedy, its messages, followed by the remedy itself.
    """
    for (severity, code, remedy), messages in merged(findings).items():
        yield [
            *(f"{severity.upper()} {code} {joined(places)}: {message}" for message, places in messages.items()),
            f"  → {remedy}",
        ]


def joined(places: Sequence[str]) -> str:
    """``gpu[01:40] 0000:84:00.0, 0000:88:00.0``; long lists are abbreviated to counts."""
    by_host = by_key((host, item) for host, _, item in (place.partition(" ") for place in places))
    equal = by_key((tuple(items), host) for host, items in by_host.items())
    phrases = [
        f"{hosts} ({len(items)} places)"
        if len(equal) > 1 and len(items) > _SHOWN_PLACES
        else " ".join((hosts, ", ".join(items))).rstrip()
        for items, names in equal.items()
        for hosts in (fold(names) if all(map(_HOST.fullmatch, names)) else names)
    ]
    more = len(phrases) - _SHOWN_HOSTS
    return "; ".join(phrases[:_SHOWN_HOSTS]) + (f"; and {more} more" if more > 0 else "")

"""Problems of a spec: each with its path in the file, its line, and a suggestion."""

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack.base.errors import SpecError
from gpustack.base.findings import Severity
from gpustack.base.operations import counted
from gpustack.base.text import clipped

Path = tuple[str | int, ...]
"""A path in a document: keys and list indexes from the top."""

Data = Any
"""Plain data of a document: mappings, lists, text, numbers, booleans, None."""

MAX_LISTED = 50
"""The largest number of problems in an error's message; ``problems`` holds all of them."""
_SHOWN = 60
_COMPARED = 1000
_LISTED = 12
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One error in a spec, or, as a warning, a probable mistake.

    :ivar path: JSONPath of the place, ``$.models.k4200.match.vendor``.
    :ivar message: the problem and the expectation.
    :ivar line: line in the file, from 1; None if there is no position.
    :ivar column: column in the file, from 1.
    :ivar suggestion: the value to write instead; None if there is no likely one.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None
    suggestion: str | None = None
    severity: Severity = Severity.ERROR

    def to_dict(self) -> dict[str, object]:
        """The problem as plain data for JSON."""
        names = ("path", "line", "column", "message", "suggestion")
        return {"severity": self.severity.value, **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        place = f"{self.line}:{self.column} {self.path}" if self.line is not None else self.path
        return f"{place}: {self.text}"

    @property
    def text(self) -> str:
        """The message with the suggestion."""
        return f"{self.message}; did you mean {self.suggestion}?" if self.suggestion else self.message


class SpecProblems(SpecError):  # noqa: N818 -- it is several
    """A spec is not valid; ``problems`` holds all errors and warnings, in the order of the file."""

    def __init__(self, problems: Sequence[Problem], *, where: str) -> None:
        self.problems = tuple(problems)
        wrong = [p for p in self.problems if p.severity is Severity.ERROR]
        lines = [f"  {problem}" for problem in wrong[:MAX_LISTED]]
        if len(wrong) > MAX_LISTED:
            lines.append(f"  … and {len(wrong) - MAX_LISTED} more")
        super().__init__("\n".join([f"the spec is not valid, {counted(len(wrong), 'error')}", *lines]), where=where)


def json_path(path: Path) -> str:
    """A path as JSONPath: ``$.hosts["gpu-[01:16]"][0]``."""
    return "$" + "".join(map(_step, path))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _BARE_KEY.fullmatch(step) and len(step) <= _SHOWN else f"[{quoted(step)}]"


def quoted(text: str) -> str:
    """A text from the file in quotes, safe for a terminal: escaped, and shortened if it is long."""
    return json.dumps(clipped(text, _SHOWN))


def listed(words: Iterable[str]) -> str:
    """Words in quotes, for a sentence: ``"full", "shared" or "isolated"``."""
    known = list(words)
    shown = [quoted(word) for word in known[:_LISTED]]
    if len(known) > _LISTED:
        shown.append(f"{len(known) - _LISTED} more")
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of ``words`` that is most similar to ``word``; None if none is similar."""
    if len(word) > _SHOWN:
        return None
    plain = {_plain(known): known for known in itertools.islice(words, _COMPARED)}
    found = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")

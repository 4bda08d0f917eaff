"""Load a spec: report all its problems at once, and return only a valid spec."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpustack.base.errors import SpecError
from gpustack.base.files import file_remedy
from gpustack.base.findings import Severity
from gpustack.spec import expected
from gpustack.spec.check import check
from gpustack.spec.document import MAX_BYTES, Document, Odd, read
from gpustack.spec.fields import NAME_PATTERN
from gpustack.spec.model import Spec
from gpustack.spec.problems import Data, Path, Problem, SpecProblems, listed, nearest, quoted

_VENDORS = {"nvidia": "10de", "amd": "1002", "ati": "1002", "intel": "8086"}
_TRUTH = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_KEY = "[key]"  # pydantic's suffix of a location when the key itself is invalid


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The result of reading a spec.

    :ivar where: the file, for messages.
    :ivar spec: the spec; None if there is an error.
    :ivar problems: errors and warnings, in the order of the file.
    """

    where: str
    spec: Spec | None
    problems: tuple[Problem, ...]

    def checked(self) -> Spec:
        """The spec.

        :raises SpecProblems: when the spec is not valid.
        """
        if self.spec is None:
            raise SpecProblems(self.problems, where=self.where)
        return self.spec


def load_spec(path: FilePath) -> Spec:
    """Read ``gpustack.yaml``.

    :raises SpecError: when it can't be read; as ``SpecProblems`` with all problems when it is not valid.
    """
    return examine_file(path).checked()


def parse_spec(text: str | bytes, where: str) -> Spec:
    """Read a spec from its text.

    :param where: the name of the spec in messages.
    :raises SpecProblems: when the spec is not valid.
    """
    return examine(text, where).checked()


def examine_file(path: FilePath) -> Examination:
    """Read ``gpustack.yaml`` and collect its problems.

    :raises SpecError: when the file can't be read.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        remedy = "run `gpustack spec init` to write a first spec" if missing else file_remedy(error)
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SpecError(f"the spec can't be read: {reason}", where=str(path), remedy=remedy) from error
    return examine(content, str(path))


def examine(text: str | bytes, where: str) -> Examination:
    """Read a spec from its text and collect its problems."""
    document = read(text)
    spec: Spec | None = None
    problems = list(document.problems)
    if document.values:
        faults = list(_version(document))
        if not faults:
            spec, faults = _validated(document)
            faults.extend(check(document))
        # At the position of a YAML error, errors of the schema add nothing.
        positions = {(problem.line, problem.column) for problem in problems}
        problems.extend(fault for fault in faults if (fault.line, fault.column) not in positions)
    if any(problem.severity is Severity.ERROR for problem in problems):
        spec = None
    return Examination(where=where, spec=spec, problems=_ordered(problems))


def _ordered(problems: list[Problem]) -> tuple[Problem, ...]:
    """Problems in the order of the file; one that an alias or a merge repeats is reported once."""
    once = {(p.line, p.column, p.message): p for p in reversed(problems)}
    return tuple(sorted(once.values(), key=lambda p: (p.line or 0, p.column or 0, p.path)))


def _version(document: Document) -> Iterator[Problem]:
    """A problem if the version is not 1. Rules of this version do not apply to others."""
    data = document.data
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version != 1:
        message = f"version {version} is not supported; this gpustack reads version 1"
        yield document.problem(("version",), message)
    elif version is not None and (isinstance(version, bool) or version != 1):
        yield document.problem(("version",), f"expected the number 1, found {_found(document, ('version',))}")


def _validated(document: Document) -> tuple[Spec | None, list[Problem]]:
    empty = {path: None for path in document.values if path and _at(document.data, path) is None}
    faults = [_empty(document, path) for path in empty]
    try:
        return Spec.model_validate(document.data), faults
    except ValidationError as error:
        # If all entries of a list are invalid, pydantic also reports the list as too short.
        details = [d for d in error.errors(include_url=False) if d["type"] != "too_short" or not d["input"]]
        translated = (_translated(document, detail) for detail in details)
        return None, faults + [problem for path, problem in translated if path not in empty]


def _at(data: Data, path: Path) -> Data:
    for step in path:
        data = data[step]
    return data


def _empty(document: Document, path: Path) -> Problem:
    node = expected.at(path, document.data)
    wanted = f": expected {expected.describe(node)}" if node else ""
    return document.problem(path, f"empty{wanted}", at_key=isinstance(path[-1], str))


def _place(data: Data, location: tuple[str | int, ...]) -> Path:
    """pydantic's location as a path of the document, without steps that only the model has."""
    path: list[str | int] = []
    for index, step in enumerate(location):
        if isinstance(data, dict):
            path.append(step)
            if step not in data:
                break
            data = data[step]
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step]
        elif index + 1 == len(location):
            break
    return tuple(path)


def _translated(document: Document, detail: ErrorDetails) -> tuple[Path, Problem]:
    """Translate one of pydantic's errors."""
    location, kind = detail["loc"], detail["type"]
    if location and location[-1] == _KEY:
        return _wrong_key(document, location[:-1], detail)
    path = _place(document.data, location)
    if kind == "missing":
        node = expected.at(path, document.data)
        message = f"{quoted(str(path[-1]))} is missing: expected {expected.describe(node)}"
        return path, document.problem(path, message)
    if kind == "extra_forbidden":
        return path, _unknown_key(document, path)
    node = expected.at(path, document.data)
    if kind == "too_short":
        return path, document.problem(path, f"empty: expected {expected.describe(node)}")
    message = f"expected {expected.describe(node)}, found {_found(document, path)}"
    if node and node.get("type") == "string" and document.raw(path) is not None and kind == "string_type":
        message += ": write it in quotes"
    return path, document.problem(path, message, suggestion=_suggestion(document, path, node))


def _wrong_key(document: Document, path: Path, detail: ErrorDetails) -> tuple[Path, Problem]:
    key = str(path[-1])
    if detail["type"] == "value_error":
        message = f"not a host pattern: {detail['ctx']['error']}"
    else:
        wanted = expected.name_of_key(expected.at(path[:-1], document.data))
        message = f"expected {wanted}, found {quoted(key)}"
    likely = re.sub(r"[^A-Za-z0-9_.-]+", "-", key).strip("-.")[:64]
    suggestion = quoted(likely) if path[0] == "models" and likely and key.isascii() else None
    return path, document.problem(path, message, at_key=True, suggestion=suggestion)


def _unknown_key(document: Document, path: Path) -> Problem:
    key, around = str(path[-1]), _at(document.data, path[:-1])
    known = expected.keys(expected.at(path[:-1], document.data))
    free = [word for word in known if word not in around]
    guess = nearest(key, free)
    message = f"unknown key {quoted(key)}"
    if guess is None:
        message += f"; expected {listed(known)}"
    return document.problem(path, message, at_key=True, suggestion=guess and quoted(guess))


def _found(document: Document, path: Path) -> str:
    """The value at a path, for a message."""
    value = _at(document.data, path)
    raw = document.raw(path)
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    shown = quoted(raw if raw is not None else str(value))[1:-1]
    if isinstance(value, bool):
        return f"{shown}, a boolean in YAML"
    if isinstance(value, int | float):
        return f"{shown}, a number in YAML"
    return f"{shown}, no text in YAML" if isinstance(value, Odd) else shown


def _suggestion(document: Document, path: Path, node: expected.Node | None) -> str | None:
    """The probable intention: the text in quotes, without quotes, the nearest word, or a vendor's id for its name."""
    if node is None:
        return None
    value, raw = _at(document.data, path), document.raw(path)
    text = value if isinstance(value, str) else raw
    if not text:
        return None
    if node.get("type") == "boolean":
        return _TRUTH.get(text.lower())
    if expected.takes_names(node) and re.fullmatch(NAME_PATTERN, text):
        return f"[{text}]"
    if fixed := expected.words(node):
        word = nearest(text, fixed)
        return word and quoted(word)
    if path and path[-1] in ("vendor", "subsystem_vendor") and text.lower() in _VENDORS:
        return quoted(_VENDORS[text.lower()])
    fitting = _fitting(text, node.get("pattern"))
    return None if isinstance(value, str) and fitting == quoted(text) else fitting


def _fitting(text: str, pattern: str | None) -> str | None:
    """The text in quotes, as it is or as a hexadecimal id, if it then matches the pattern."""
    if pattern is None or len(text) > 64:
        return None
    bare = text.strip().lower().removeprefix("0x").replace("_", "")
    for likely in (text, bare, bare.zfill(4)):
        if re.fullmatch(pattern, likely, re.ASCII):
            return quoted(likely)
    return None

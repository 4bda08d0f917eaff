"""Load a spec: report all its problems at once, and return only a valid spec.

The part of the JSON schema for a path of a spec, and its description for a message.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpustack.base.errors import SpecError
from gpustack.base.files import file_remedy
from gpustack.base.findings import Severity
from gpustack.hosts.facts.model import Host
from gpustack.pci.catalogue import products_called
from gpustack.spec.check import check
from gpustack.spec.document import (
    MAX_BYTES,
    Data,
    Document,
    Path,
    Problem,
    SpecProblems,
    listed,
    mapping,
    nearest,
    quoted,
    read,
)
from gpustack.spec.fields import NAME_PATTERN
from gpustack.spec.model import Spec, with_groups
from gpustack.spec.schema import resolve, schema

Node = dict[str, Any]


def at(path: Path, data: object) -> Node | None:
    """The part of the schema for a path of ``data``; None if the schema has none."""
    node = resolve(schema())
    for step in path:
        if (below := _step(_variant(node, data), step)) is None:
            return None
        node = resolve(below)
        data = _child(data, step)
    return node


def _step(node: Node, step: str | int) -> Node | None:
    if isinstance(step, int):
        return node.get("items")
    known = node.get("properties", {}).get(step, node.get("additionalProperties"))
    return known if isinstance(known, dict) else None


def _child(data: object, step: str | int) -> object:
    if isinstance(data, dict):
        return data.get(step)
    return data[step] if isinstance(data, list) and isinstance(step, int) and step < len(data) else None


def _variant(node: Node, data: object) -> Node:
    """For a choice (``anyOf``), the variant for the type of ``data``."""
    variants = [resolve(variant) for variant in node.get("anyOf", ())]
    wanted = "array" if isinstance(data, list) else "object"
    return next((variant for variant in variants if variant.get("type") == wanted), node)


def keys(node: Node | None) -> list[str]:
    """The keys that a mapping may have; empty if they are free."""
    return list(_variant(node, {}).get("properties", ())) if node else []


def takes_names(node: Node) -> bool:
    """Whether a list of names is one of the permitted variants."""
    variants = [resolve(variant) for variant in node.get("anyOf", ())]
    return any(resolve(variant.get("items", {})).get("type") == "string" for variant in variants)


def describe(node: Node | None) -> str:
    """The expected value, without the word "expected": ``true or false``."""
    if node is None:
        return "something else"
    node = resolve(node)
    if "errorMessage" in node:
        return str(node["errorMessage"]).removeprefix("expected ")
    if "anyOf" in node:
        return ", or ".join(describe(variant) for variant in node["anyOf"])
    if "enum" in node:
        return listed(node["enum"])
    if "const" in node:
        return f"the number {node['const']}"
    return _KINDS.get(node.get("type", ""), _expectation)(node)


def _expectation(node: Node) -> str:
    message: str = node.get("patternErrorMessage", "expected text")
    return message.removeprefix("expected ") + (f", like {quoted(node['examples'][0])}" if "examples" in node else "")


def _mapping(node: Node) -> str:
    *first, last = node.get("required", [""])
    return "a mapping" + (f" with {' and '.join([', '.join(first), last] if first else [last])}" if last else "")


_KINDS = {
    "boolean": lambda _: "true or false",
    "array": lambda node: f"a list, each entry {describe(node['items'])}",
    "object": _mapping,
}

_VENDORS = {"nvidia": "10de", "amd": "1002", "ati": "1002", "intel": "8086"}
_TRUTH = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_NUMBER = ", a number in YAML"
_READ_AS = {"bool": ", a boolean in YAML", "int": _NUMBER, "float": _NUMBER, "Odd": ", no text in YAML"}
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


def load_spec(path: FilePath, hosts: Iterable[Host] = ()) -> Spec:
    """Read ``gpustack.yaml``.

    :param hosts: the hosts that may be in the groups that it names; without them, the groups stay.
    :raises SpecError: when it can't be read, or the groups of a host are unknown; ``SpecProblems`` with all problems
        when it is not valid.
    """
    return with_groups(examine_file(path).checked(), {host.hostname: host.inventory_groups for host in hosts})


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
        init = "name another file, or write one with `gpustack spec init`"
        remedy = init if isinstance(error, FileNotFoundError) else file_remedy(error)
        raise SpecError(f"the spec can't be read: {error.strerror or error}", where=str(path), remedy=remedy) from error
    return examine(content, str(path))


def examine(text: str | bytes, where: str) -> Examination:
    """Read a spec from its text and collect its problems."""
    document = read(text)
    if "gpustack_snapshot" in mapping(document.data):
        wrong = "a snapshot of `gpustack scan --save`: name it with --snapshot, and a spec here"
        return Examination(where=where, spec=None, problems=(document.problem((), wrong),))
    spec: Spec | None = None
    problems = list(document.problems)
    if document.values:
        if not (faults := list(_version(document))):
            spec, faults = _validated(document)
            faults.extend(check(document))
        # At the position of a YAML error, errors of the schema add nothing.
        positions = {(problem.line, problem.column) for problem in problems}
        problems.extend(fault for fault in faults if (fault.line, fault.column) not in positions)
    if any(problem.severity is Severity.ERROR for problem in problems):
        spec = None
    # In the order of the file; one that an alias or a merge repeats is reported once.
    once = {(p.line, p.column, p.message): p for p in reversed(problems)}
    in_order = tuple(sorted(once.values(), key=lambda p: (p.line or 0, p.column or 0, p.path)))
    return Examination(where=where, spec=spec, problems=in_order)


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
    node = at(path, document.data)
    wanted = f": expected {describe(node)}" if node else ""
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
        node = at(path, document.data)
        return path, document.problem(path, f"{quoted(str(path[-1]))} is missing: expected {describe(node)}")
    if kind == "extra_forbidden":
        return path, _unknown_key(document, path)
    node = at(path, document.data)
    if kind == "too_short":
        return path, document.problem(path, f"empty: expected {describe(node)}")
    message = f"expected {describe(node)}, found {_found(document, path)}"
    if node and node.get("type") == "string" and document.raw(path) is not None and kind == "string_type":
        message += ": write it in quotes"
    return path, document.problem(path, message, suggestion=_suggestion(document, path, node))


def _wrong_key(document: Document, path: Path, detail: ErrorDetails) -> tuple[Path, Problem]:
    key = str(path[-1])
    if detail["type"] == "value_error":
        message = f"not a host pattern: {detail['ctx']['error']}"
    else:
        names = (at(path[:-1], document.data) or {}).get("propertyNames")
        wanted = _expectation(resolve(names)) if names else "text"
        message = f"expected {wanted}, found {quoted(key)}"
    likely = re.sub(r"[^A-Za-z0-9_.-]+", "-", key).strip("-.")[:64]
    suggestion = quoted(likely) if path[0] == "models" and likely and key.isascii() else None
    return path, document.problem(path, message, at_key=True, suggestion=suggestion)


def _unknown_key(document: Document, path: Path) -> Problem:
    key, around = str(path[-1]), _at(document.data, path[:-1])
    known = keys(at(path[:-1], document.data))
    guess = nearest(key, [word for word in known if word not in around])
    message = f"unknown key {quoted(key)}" + (f"; expected {listed(known)}" if guess is None else "")
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
    return f"{shown}{_READ_AS.get(type(value).__name__, '')}" or "nothing"


def _suggestion(document: Document, path: Path, node: Node | None) -> str | None:
    """The probable intention: the text in quotes, without quotes, the nearest word, or the id of a vendor or card."""
    if node is None:
        return None
    value, raw = _at(document.data, path), document.raw(path)
    text = value if isinstance(value, str) else raw
    if not text:
        return None
    if node.get("type") == "boolean":
        return _TRUTH.get(text.lower())
    if takes_names(node) and re.fullmatch(NAME_PATTERN, text):
        return f"[{text}]"
    if fixed := [word for word in node.get("enum", ()) if isinstance(word, str)]:
        word = nearest(text, fixed)
        return word and quoted(word)
    if path and path[-1] in ("vendor", "subsystem_vendor") and text.lower() in _VENDORS:
        return quoted(_VENDORS[text.lower()])
    if path and path[-1] == "product":
        vendor = str(_at(document.data, path[:-1]).get("vendor")).lower()
        if named := products_called(text, _VENDORS.get(vendor, vendor)):
            return listed(named)
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

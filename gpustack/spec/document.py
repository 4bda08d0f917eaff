"""Read untrusted YAML: plain data, the position of each value, and all syntax problems.

PyYAML scans and parses; no object is ever built from a tag. Size, depth and number of nodes are limited before data is
built; nodes are counted as aliases would expand. Scalars that YAML 1.1 and YAML 1.2 read differently (``0o17``,
``08``, ``11e4``) are numbers here: they are refused where text is expected, and never become a different text.

A problem of a spec has its path in the file, its line, and a suggestion.
"""

import difflib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from gpustack.base.errors import SpecError
from gpustack.base.findings import Severity
from gpustack.base.limited_yaml import LimitedLoader, YamlLimitError
from gpustack.base.text import clipped, counted

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


MAX_BYTES = 1 << 20
MAX_DEPTH = 24
MAX_NODES = 100_000

_PREFIX = "tag:yaml.org,2002:"
_TEXT, _NULL, _MERGE = f"{_PREFIX}str", f"{_PREFIX}null", f"{_PREFIX}merge"
_BOOL, _INT, _FLOAT = f"{_PREFIX}bool", f"{_PREFIX}int", f"{_PREFIX}float"
_TIME = f"{_PREFIX}timestamp"
_SCALARS = {_TEXT, _NULL, _BOOL, _INT, _FLOAT, _TIME, _MERGE, f"{_PREFIX}value"}
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A scalar that is not text, a boolean or a plain number: a date, or a tagged value."""

    text: str


@dataclass(kw_only=True)
class Document:
    """A YAML document as plain data, with the position of each part."""

    data: Data = None
    values: dict[Path, yaml.Node] = field(default_factory=dict)
    keys: dict[Path, yaml.Node] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _guesses: dict[str, str | None] = field(default_factory=dict)

    def problem(
        self,
        path: Path,
        message: str,
        *,
        at_key: bool = False,
        suggestion: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> Problem:
        """A problem at a path, with line and column of its value, or of its key or the nearest parent."""
        node = self.keys.get(path) if at_key else None
        for length in range(len(path), -1, -1):
            node = node or self.values.get(path[:length])
        problem = _problem(path, message, node.start_mark if node else None)
        return replace(problem, suggestion=suggestion, severity=severity)

    def unknown_model(self, path: Path, name: str, models: Collection[str]) -> Problem:
        """A name that is no model, as a value or as the last key of a path, with the most similar model."""
        if name not in self._guesses and len(self._guesses) < MAX_LISTED:
            self._guesses[name] = nearest(name, models)
        guess = self._guesses.get(name)
        message = f"no model is called {quoted(name)}" + ("" if guess else f"; expected {listed(models)}")
        return self.problem(path, message, suggestion=guess and quoted(guess), at_key=path[-1] == name)

    def raw(self, path: Path) -> str | None:
        """The source text of an unquoted scalar; None for anything else."""
        node = self.values.get(path)
        return node.value if isinstance(node, yaml.ScalarNode) and not node.style else None


def mapping(data: object, *keys: str) -> dict[str, Any]:
    """The mapping at a path of mappings; empty if there is something else."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def entries(data: object, key: str) -> list[Any]:
    """The list under a key of a mapping; empty if either is something else."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, list) else []


class _Loader(LimitedLoader):
    """The loader of specs, which also reads the numbers of YAML 1.2 as numbers."""

    levels, values = MAX_DEPTH, MAX_NODES


_Loader.add_implicit_resolver(_INT, re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)


def is_text(plain: str) -> bool:
    """Whether every version of YAML reads an unquoted scalar as text, judged by its characters alone."""
    tag = _Loader("").resolve(yaml.ScalarNode, plain, (True, False))  # type: ignore[no-untyped-call]
    return bool(tag == _TEXT)


def read(source: str | bytes) -> Document:
    """Read one YAML document. Problems are collected in ``problems``; nothing is raised."""
    document = Document()
    if (text := _decode(source, document)) is None:
        return document
    if (root := _compose(text, document)) is not None:
        document.data = _Converter(document).value(root, ())
    return document


def _decode(source: str | bytes, document: Document) -> str | None:
    if len(source) > MAX_BYTES:
        document.problems.append(_problem((), f"larger than {MAX_BYTES >> 10} KiB, the largest size of a spec"))
        return None
    if isinstance(source, str):
        return source.removeprefix("\ufeff")
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        message = f"not UTF-8: byte 0x{source[error.start]:02x}"
        document.problems.append(Problem(path="$", message=message, line=line, column=column))
        return None


def _compose(text: str, document: Document) -> yaml.Node | None:
    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        # The position counts characters from the start, since the text was passed at once.
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        document.problems.append(Problem(path="$", message=message, line=line, column=column))
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax(error, text))
    except (ValueError, OverflowError):
        # PyYAML does not check the numbers of an escape like "\Uffffffff" or of a %YAML directive.
        mark = loader.get_mark() if loader else None
        document.problems.append(_problem((), "not valid YAML: a number here is out of range", mark))
    else:
        if root is None:
            document.problems.append(_problem((), "empty; expected at least version, models and hosts"))
        return root
    return None


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """The YAML error, in terms of a spec."""
    if conflict := re.search("^(?:<{7} |>{7} |={7}$)", text, re.MULTILINE):
        line = text.count("\n", 0, conflict.start()) + 1
        return Problem(path="$", message="a line of a merge conflict: resolve the conflict", line=line, column=1)
    description = f"{error.problem} ({error.context})" if error.context else str(error.problem)
    mark = error.problem_mark or error.context_mark
    if isinstance(error, YamlLimitError):
        message = description
    elif "unexpected end of stream" in description:
        message, mark = "opened here and never closed; the file may be cut off", error.context_mark or mark
    elif "'\\t'" in description:
        message = "a tab; YAML is indented with spaces"
    elif "expected a single document" in description:
        message = "a second document begins here; a spec is one document"
    elif "found undefined alias" in description or "scanning an alias" in description:
        message = "an alias (*) without an anchor (&); write a host pattern that begins with * in quotes"
    else:
        readable = _UNFIT.sub("?", description).encode("ascii", "backslashreplace").decode("ascii")
        message = f"not valid YAML: {readable}"
    return _problem((), message, mark)


def _problem(path: Path, message: str, mark: yaml.Mark | None = None) -> Problem:
    if mark is None:
        return Problem(path=json_path(path), message=message)
    return Problem(path=json_path(path), message=message, line=mark.line + 1, column=mark.column + 1)


class _Converter:
    """Converts nodes to plain data, and records the position of each part."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._construct = SafeConstructor()

    def value(self, node: yaml.Node, path: Path) -> Data:
        self._document.values[path] = node
        if isinstance(node, yaml.MappingNode):
            self._expect_tag(node, path, f"{_PREFIX}map")
            data: dict[str, Data] = {}
            for key_node, value_node in self._pairs(node, path):
                key = key_node.value
                self._document.keys[(*path, key)] = key_node
                data[key] = self.value(value_node, (*path, key))
            return data
        if isinstance(node, yaml.SequenceNode):
            self._expect_tag(node, path, f"{_PREFIX}seq")
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 -- YAML has no fourth kind
        return self._scalar(node, path)

    def _pairs(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The entries of a mapping: its own, then those merged by ``<<`` under keys that it lacks."""
        first: dict[str, yaml.Node] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged.extend(value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node])
            elif not isinstance(key_node, yaml.ScalarNode):
                self._report(path, "a key must be text, not a list or a mapping", key_node)
            elif key_node.value in first:
                line = first[key_node.value].start_mark.line + 1
                message = f"{quoted(key_node.value)} is given twice, first on line {line}"
                self._report((*path, key_node.value), message, key_node)
            else:
                self._check_key(key_node, path)
                first[key_node.value] = key_node
                yield key_node, value_node
        for other in merged:
            if not isinstance(other, yaml.MappingNode):
                self._report((*path, "<<"), "<< takes a mapping or a list of mappings", other)
                continue
            for key_node, value_node in self._pairs(other, path):
                if key_node.value not in first:
                    first[key_node.value] = key_node
                    yield key_node, value_node

    def _check_key(self, node: yaml.ScalarNode, path: Path) -> None:
        if node.tag == _NULL and not node.value:
            self._report(path, "a key is missing before ':'", node)
        elif node.tag != _TEXT:
            self._report((*path, node.value), f"a key must be text: write it in quotes, {quoted(node.value)}", node)
        elif _UNFIT.search(node.value):
            self._report((*path, node.value), f"the key {quoted(node.value)} has control characters", node)

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Data:
        text: str = node.value
        if node.tag not in _SCALARS:
            self._expect_tag(node, path, _TEXT)
        elif node.tag == _NULL:
            return None
        elif node.tag == _TEXT:
            if _UNFIT.search(text):
                self._report(path, f"{quoted(text)} has line breaks or control characters", node)
            return text
        elif node.tag == _BOOL:
            return SafeConstructor.bool_values.get(text.lower(), Odd(text=text))
        elif node.tag in (_INT, _FLOAT) and len(text) <= 32:
            try:
                if node.tag == _INT:
                    return self._construct.construct_yaml_int(node)
                return self._construct.construct_yaml_float(node)
            except (ValueError, IndexError):
                return Odd(text=text)
        return Odd(text=text)

    def _expect_tag(self, node: yaml.Node, path: Path, tag: str) -> None:
        if node.tag != tag:
            printed = quoted(node.tag.replace(_PREFIX, "!!"))
            self._report(path, f"the tag {printed} is not used in a spec", node)

    def _report(self, path: Path, message: str, node: yaml.Node) -> None:
        self._document.problems.append(_problem(path, message, node.start_mark))

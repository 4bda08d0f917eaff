"""Paths and dotted names that files mention outside imports, as functions of texts."""

from __future__ import annotations

import ast
import fnmatch
import re
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from support.house import Source

_PATH = re.compile(
    r"(?<![\w/.$~{<>:-])((?:gpustack|tests|tools|bench|demo|playbooks|templates|weigher)/[\w./*?-]+)(?![\w{(])"
)
_MODULE = re.compile(r"`([\w/]+/\w+\.py)`")
_DOTTED = re.compile(r"(?<![\w.@/-])(gpustack(?:_demo)?(?:\.\w+)+)")
_FILES = ("conf", "css", "html", "json", "list", "prom", "rules", "svg", "timer", "toml", "trial", "yaml", "yml")
"""The ends of file names, such as ``gpustack.yaml``, that look like a dotted name."""


def missing_paths(text: str, present: Collection[str], *, only_comments: bool = False) -> Iterator[tuple[int, str]]:
    """Paths in a text that are not in the repository, with their lines; ``*`` and ``?`` match.

    :param present: the files and directories of the repository.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if only_comments and not line.lstrip().startswith("#"):
            continue
        for name in _PATH.findall(line):
            path = name.rstrip("./")
            if path not in present and not ("*" in path and fnmatch.filter(present, path)):
                yield number, path


def missing_modules(text: str, roots: Iterable[str], present: Collection[str]) -> Iterator[tuple[int, str]]:
    """Modules in backquotes, ``host/plan.py``, that none of the directories has."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in _MODULE.findall(line):
            if not any(f"{root}{name}" in present for root in roots):
                yield number, name


def names(code: Iterable[Source]) -> dict[str, set[str]]:
    """What each module defines or imports, in classes and functions too; ``*`` if it takes all of another one."""
    return {source.name: set(_names(source)) for source in code}


def _names(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).rpartition(".")[2]


def missing_names(text: str, known: Mapping[str, Collection[str]]) -> Iterator[tuple[int, str]]:
    """Dotted names, ``gpustack.spec.model.Spec``, that no module defines."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in _DOTTED.findall(line):
            parts = name.split(".")
            module = next(parts[:end] for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in known)
            rest, defined = parts[len(module) :], known[".".join(module)]
            if rest and not {rest[0], "*"} & set(defined) and not (len(module) == 1 and rest[0] in _FILES):
                yield number, name


def joined(source: str, path: PurePosixPath) -> Iterator[tuple[int, str]]:
    """Paths that a script joins from its own place: ``Path(__file__).parents[1] / "docs" / "index.md"``, with lines."""
    tree = ast.parse(source)
    roots = {
        target.id: base
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and (base := _place(node.value, path, {})) is not None
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    inner = {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and id(node) not in inner and (place := _place(node, path, roots)) is not None:
            yield node.lineno, str(place)


def _place(node: ast.expr, path: PurePosixPath, roots: Mapping[str, PurePosixPath]) -> PurePosixPath | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
        left = _place(node.left, path, roots)
        return None if left is None else left / str(node.right.value)
    if isinstance(node, ast.Name):
        return roots.get(node.id)
    own = re.fullmatch(r"Path\(__file__\)(?:\.resolve\(\))?(?:\.(parent)|\.parents\[(\d)\])", ast.unparse(node))
    return path.parents[int(own[2] or 0)] if own else None


def of_nox(source: str) -> set[str]:
    """The paths of tests in the constants of a noxfile, which runs here without nox."""
    nox = types.ModuleType("nox")
    nox.__dict__.update(options=types.SimpleNamespace(), parametrize=lambda *_: _same, session=_same, needs_version="")
    constants: dict[str, object] = {}
    before = sys.modules.get("nox")
    sys.modules["nox"] = nox
    try:
        exec(compile(source, "noxfile.py", "exec"), constants)  # noqa: S102 - the repository's own file
    finally:
        sys.modules.pop("nox")
        if before is not None:
            sys.modules["nox"] = before
    values = (value for value in constants.values() if isinstance(value, tuple))
    return {path for value in values for path in value if isinstance(path, str) and path.startswith("tests/")}


def _same(function: object) -> object:
    return function


def dangling(top: Path, directory: str) -> list[str]:
    """Links in a directory that point nowhere, or out of the repository."""
    links = (path for path in (top / directory).iterdir() if path.is_symlink())
    return [
        f"{link.relative_to(top)} → {link.readlink()}"
        for link in links
        if not link.exists() or not link.resolve().is_relative_to(top.resolve())
    ]

"""The rules about the layout of the code, as functions of sources; ``tests/unit/test_layout.py`` applies them.

A breach is a line ``path:line: problem``. ``tests/unit/test_house.py`` breaks each rule with a sample.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PACKAGES = ("gpustack", "gpustack_demo")
ROOT = {"gpustack": "gpustack", "gpustack_demo": "demo/gpustack_demo"}
DEMO = frozenset({"embedded", "examples"})
"""The rooms of the demo's distribution."""
FACES = frozenset({"__init__", "__main__", "osc_plugin", "errors", "task_results"})
"""The modules directly below ``gpustack/``: names of Python and openstackclient, the public errors, one of 0.1.0."""


class Use(NamedTuple):
    """A name in a source, with its line."""

    line: int
    name: str


@dataclass(frozen=True)
class Source:
    """A module of the product or of the demo.

    :ivar path: the path in the repository, with slashes.
    """

    path: str
    text: str

    @property
    def name(self) -> str:
        """The dotted name: ``gpustack.spec.model``."""
        return re.sub(r"(/__init__)?\.py$", "", self.path.removeprefix("demo/")).replace("/", ".")

    @property
    def room(self) -> str:
        """The package or module directly below ``gpustack``; empty for that package itself."""
        return (*self.name.split("."), "")[1]

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Use]:
        """Every import, in functions and for types too; of ``from a import b``, the name is ``a.b``."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [Use(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [Use(node.lineno, f"{self._base(node)}.{alias.name}") for alias in node.names]
            elif isinstance(node, ast.Call) and _called(node).endswith(("import_module", "__import__")):
                found += [Use(node.lineno, str(a.value)) for a in node.args if isinstance(a, ast.Constant)]
        return found

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".") + ["__init__"] * self.path.endswith("/__init__.py")
        return ".".join([*parts[: -node.level], *([node.module] if node.module else [])])

    def breach(self, line: int, problem: str) -> str:
        """The text of a breach."""
        return f"{self.path}:{line}: {problem}"


def sources(top: Path) -> list[Source]:
    """The modules of the product and of the demo."""
    paths = [path for package in PACKAGES for path in sorted((top / ROOT[package]).rglob("*.py"))]
    return [Source(path.relative_to(top).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


# Floors and inner walls


def floors(page: str) -> dict[str, int]:
    """The floor of each room, from the table of the architecture page."""
    rows = re.findall(r"^\| (\d+) \| (`.+?) \|", page, re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}


def walls(page: str) -> dict[str, list[set[str]]]:
    """The floors inside each package, the lowest first: ``| `offer` | `flavor` < `guest`, `image` |``."""
    rows = re.findall(r"^\| `([\w/]+)` \| ((?:`\w+`(?:, | < )?)+) \|$", page, re.MULTILINE)
    return {room: [set(re.findall(r"`(\w+)`", floor)) for floor in order.split(" < ")] for room, order in rows}


def unlisted(code: Sequence[Source], page: str) -> Iterator[str]:
    """Rooms and subpackages without a row, rows without a package, gaps in the floors, packages without a face."""
    by_floor, inner = floors(page), walls(page)
    packages = {source.name for source in code if source.path.endswith("/__init__.py")}
    paths = {source.room: source.path for source in code if source.room}
    for room in sorted(paths.keys() - by_floor.keys() - FACES):
        yield f"{paths[room]}: {room} has no row in the table of the floors"
    for room in sorted(by_floor.keys() - paths.keys()):
        yield f"the table of the floors has a row for {room}, which does not exist"
    if (numbers := sorted(set(by_floor.values()))) != list(range(len(numbers))):
        yield f"the floors have a gap: {numbers}"
    below: dict[str, set[str]] = {}
    for _, *parents, name in (name.split(".") for name in packages if name.count(".") > 1):
        below.setdefault("/".join(parents), set()).add(name)
    for parent in sorted(below.keys() | inner.keys()):
        present, listed = below.get(parent, set()), set().union(*inner.get(parent, []))
        if len(present) > 1 or listed:
            for name in sorted(present - listed):
                yield f"{parent}/{name} has no place in the table of the inner floors"
            for name in sorted(listed - present):
                yield f"the inner floors of {parent} list {name}, which does not exist"
    faceless = {source.name.rpartition(".")[0] for source in code if "." in source.name} - packages
    yield from (f"{name.replace('.', '/')}/__init__.py is missing" for name in sorted(faceless))


START, END = "<!-- the map, from docs/explanation/architecture.md -->", "<!-- end of the map -->"


def with_map(text: str, page: str) -> str:
    """CONTRIBUTING.md with the map of the rooms, from the table of the architecture page."""
    rows = re.findall(r"^\| \d+ \| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    lines = ["| Job | Room | Holds | Tests |", "|---|---|---|---|"]
    lines += [f"| {job} | `{room_path(room)}` | {holds} | {tests} |" for room, job, holds, tests in rows]
    before, _, rest = text.partition(START)
    return "\n".join([before + START, "", *lines, "", END + rest.partition(END)[2]])


def room_path(room: str) -> str:
    """The directory of a room in the repository."""
    return f"{ROOT['gpustack_demo' if room in DEMO else 'gpustack']}/{room}"


def upward(code: Iterable[Source], by_floor: Mapping[str, int]) -> Iterator[str]:
    """Imports of a room on the same or a higher floor."""
    for source in code:
        for use in source.imports:
            package, _, rest = use.name.partition(".")
            room = rest.partition(".")[0]
            if package in PACKAGES and room != source.room and by_floor.get(room, -1) >= by_floor.get(source.room, 99):
                problem = f"{source.room} (floor {by_floor[source.room]}) imports {room} (floor {by_floor[room]})"
                yield source.breach(use.line, problem)


def inward(code: Iterable[Source], inner: Mapping[str, Sequence[Collection[str]]]) -> Iterator[str]:
    """Imports between subpackages of a package that do not point to a lower inner floor."""
    for parent, order in inner.items():
        rank = {part: floor for floor, parts in enumerate(order) for part in parts}
        for source in code:
            own = _part(source.name, parent)
            for use in source.imports if own in rank else ():
                target = _part(use.name, parent)
                if target != own and rank.get(target, -1) >= rank[own]:
                    problem = f"{parent}/{own} imports {parent}/{target}, which is not on a lower inner floor"
                    yield source.breach(use.line, problem)


def _part(name: str, parent: str) -> str:
    """The subpackage or module of a package that a name is in; empty if it is in another package."""
    place = name.partition(".")[2].replace(".", "/")
    return place.removeprefix(f"{parent}/").partition("/")[0] if place.startswith(f"{parent}/") else ""


def arrows(code: Iterable[Source]) -> set[tuple[str, str]]:
    """The pairs of rooms of the product of which the first imports the second."""
    pairs = {
        (source.room, use.name.split(".")[1])
        for source in code
        for use in source.imports
        if source.name.startswith("gpustack.") and use.name.startswith("gpustack.")
    }
    return {(room, target) for room, target in pairs if target not in (room, "__version__")}


def circles(code: Sequence[Source]) -> Iterator[str]:
    """Imports that close a circle between modules."""
    by_name = {source.name: source for source in code}
    edges: dict[str, dict[str, int]] = {name: {} for name in by_name}
    for source in code:
        for use in source.imports:
            target = use.name if use.name in by_name else use.name.rpartition(".")[0]
            if target in by_name and target != source.name:
                edges[source.name].setdefault(target, use.line)
    done: set[str] = set()
    for start in sorted(by_name):
        yield from _closing(start, edges, by_name, done)


def _closing(
    start: str, edges: Mapping[str, Mapping[str, int]], by_name: Mapping[str, Source], done: set[str]
) -> Iterator[str]:
    """Walk the imports from a module in depth, and report those that lead back to the path of the walk."""
    path, pending = [start], [iter(sorted(edges[start]))]
    while path:
        target = next(pending[-1], None)
        if target is None:
            done.add(path.pop())
            pending.pop()
        elif target in path:
            circle = [*path[path.index(target) :], target]
            yield by_name[path[-1]].breach(edges[path[-1]][target], f"closes the circle {' → '.join(circle)}")
        elif target not in done:
            path.append(target)
            pending.append(iter(sorted(edges[target])))


# Doors


@dataclass(frozen=True, kw_only=True)
class Door:
    """What only some places may use.

    :ivar imports: modules, with everything below them.
    :ivar calls: the ends of called names: ``os.system``.
    :ivar strings: constants that name a program.
    :ivar places: prefixes of paths.
    """

    imports: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    places: tuple[str, ...]


def _called(node: ast.Call) -> str:
    """The dotted name of a called function; of a method of an expression, only the name of the method."""
    parts: list[str] = []
    function: ast.expr = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join(reversed([*parts, function.id] if isinstance(function, ast.Name) else parts))


def beside(door: Door, code: Iterable[Source]) -> Iterator[str]:
    """Uses of what a door holds, outside its places."""
    for source in code:
        if source.path.startswith(door.places):
            continue
        for use in source.imports:
            if any(f"{use.name}.".startswith(f"{module}.") for module in door.imports):
                yield source.breach(use.line, f"imports {use.name}, only for {', '.join(door.places)}")
        for node in source.nodes:
            if door.calls and isinstance(node, ast.Call) and (name := _called(node)).endswith(door.calls):
                yield source.breach(node.lineno, f"calls {name}, only for {', '.join(door.places)}")
            elif isinstance(node, ast.Constant) and node.value in door.strings:
                yield source.breach(node.lineno, f"names the program {node.value}, only for {', '.join(door.places)}")


def unused(door: Door, code: Iterable[Source]) -> Iterator[str]:
    """Places of a door that do not use it: the list shrinks with the code."""
    code = list(code)
    outside = Door(imports=door.imports, calls=door.calls, strings=door.strings, places=("\0",))
    for place in door.places:
        if not any(beside(outside, [source for source in code if source.path.startswith(place)])):
            held = ", ".join((*door.imports, *door.calls, *door.strings))
            yield f"{place}: is listed as a place for {held}, and uses none of them"


_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_CLIENTS = re.compile(r"(^|\W)_?(api|client|cloud|connection|nova|\w+Cloud\(.*\))$")


def cloud_writers(code: Iterable[Source]) -> dict[str, str]:
    """The public functions and methods of ``cloud/`` that change something, each with its module.

    They name a method of HTTP that writes, use python-novaclient, or call such a function of their module. Only
    ``session.may`` writes nothing: it asks for a right with an object that does not exist. Nova's action for a console
    log writes nothing either.
    """
    found: dict[str, str] = {}
    for source in code:
        if source.room != "cloud":
            continue
        nodes = {node.name: list(ast.walk(node)) for node in source.nodes if isinstance(node, ast.FunctionDef)}
        writers = {
            name
            for name, inner in nodes.items()
            if any(getattr(node, "value", None) in _WRITES for node in inner if isinstance(node, ast.Constant))
            or any(ast.unparse(node).startswith("self._nova.") for node in inner if isinstance(node, ast.Attribute))
        } - {"may", "console_log"}
        while more := {name for name, inner in nodes.items() if not writers.isdisjoint(_names(inner))} - writers:
            writers |= more
        found |= {name: source.name for name in writers if name[0] != "_"}
    return found


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call):
            yield _called(node).rpartition(".")[2]


def writing(code: Iterable[Source], writers: Mapping[str, str]) -> Iterator[tuple[Source, str]]:
    """The modules outside ``cloud/`` that use its writers, with a breach for each use: on its clients, or imported."""
    for source in code:
        if source.room == "cloud":
            continue
        modules = {f"{module}.{name}" for name, module in writers.items()}
        for use in source.imports:
            if use.name in modules:
                yield source, source.breach(use.line, f"imports {use.name}, which changes a cloud")
        known = {use.name.rpartition(".")[2] for use in source.imports if use.name in writers.values()}
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr in writers:
                receiver = ast.unparse(node.value)
                if receiver in known or _CLIENTS.search(receiver):
                    yield source, source.breach(node.lineno, f"uses {receiver}.{node.attr}, which changes a cloud")


def masks(code: Iterable[Source], *doors: str) -> Iterator[str]:
    """Rules of their own about secrets: a mask, a pattern of names of secrets, or the mark of an option."""
    for source in code:
        if source.path in doors:
            continue
        called = {id(node.func) for node in source.nodes if isinstance(node, ast.Call)}
        for node in source.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.value == "***" or re.search(r"passw\w*\|[^ ]*(secret|token)", node.value):
                    yield source.breach(node.lineno, f"masks by itself, only for {doors[-1]}")
            elif isinstance(node, ast.Attribute) and node.attr == "secret" and id(node) not in called:
                yield source.breach(node.lineno, f"asks whether an option is secret, only for {doors[-1]}")


OPENING = ("open", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "mkdtemp")


def operations(code: Iterable[Source]) -> set[str]:
    """The names of the classes of operations: ``Operation``, and the classes below it."""
    bases: dict[str, set[str]] = defaultdict(set)
    for source in code:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    names = {"Operation"}
    while more := {name for name, parents in bases.items() if parents & names} - names:
        names |= more
    return names


def deciding(code: Iterable[Source], classes: Container[str]) -> Iterator[str]:
    """Decisions below ``cli/``: built operations, opened files, compared versions."""
    for source in code:
        if source.room != "cli":
            continue
        for node in source.nodes:
            if isinstance(node, ast.Call):
                name = _called(node).rpartition(".")[2]
                if name in classes:
                    yield source.breach(node.lineno, f"builds the operation {name}")
                if name in OPENING:
                    yield source.breach(node.lineno, f"opens a file: {name}")
            elif isinstance(node, ast.Compare) and _of_versions(node):
                yield source.breach(node.lineno, f"compares versions: {ast.unparse(node)}")


def _of_versions(node: ast.Compare) -> bool:
    ordered = any(isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for operator in node.ops)
    return ordered and re.search(r"(?i)version|release", ast.unparse(node)) is not None


# Ceilings


def functions(source: Source) -> Iterator[tuple[int, int, str]]:
    """The length, first line and name of each function."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield node.end_lineno - node.lineno + 1, node.lineno, node.name


def too_long(code: Iterable[Source], *, module: int, function: int) -> Iterator[str]:
    """Modules and functions above the ceilings, in lines."""
    for source in code:
        lines = source.text.count("\n")
        if lines > module:
            yield source.breach(lines, f"the module has {lines} lines, at most {module}")
        for length, line, name in functions(source):
            if length > function:
                yield source.breach(line, f"{name} has {length} lines, at most {function}")


def shared_class_names(code: Iterable[Source]) -> dict[str, list[str]]:
    """The public class names that several modules define, each with their paths and lines."""
    defined: dict[str, list[str]] = defaultdict(list)
    for source in code:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(f"{source.path}:{node.lineno}")
    return {name: places for name, places in sorted(defined.items()) if len(places) > 1}


def postponed(code: Iterable[Source]) -> Iterator[str]:
    """Modules that import ``annotations`` from ``__future__`` although each name in their annotations exists."""
    for source in code:
        lines = [use.line for use in source.imports if use.name == "__future__.annotations"]
        if not lines or "TYPE_CHECKING" in source.text:
            continue
        ends = {node.name: node.end_lineno or 0 for node in source.tree.body if isinstance(node, ast.ClassDef)}
        uses = (name for annotation in _annotations(source.tree) for name in ast.walk(annotation))
        if not any(isinstance(use, ast.Name) and use.lineno <= ends.get(use.id, 0) for use in uses):
            yield source.breach(lines[0], "imports annotations from __future__, and no annotation needs it")


def _annotations(scope: ast.Module | ast.ClassDef) -> Iterator[ast.expr]:
    """The annotations that Python evaluates when it imports a module: not those in functions."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from _annotations(node)
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            )
            yield from (entry.annotation for entry in arguments if entry is not None and entry.annotation is not None)
            yield from [node.returns] if node.returns is not None else []


# Mirrors


def has_decision(source: Source) -> bool:
    """Whether a function of the module has a branch."""
    branches = (ast.If, ast.IfExp, ast.While, ast.Try, ast.Match)
    bodies = (node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(isinstance(node, branches) for body in bodies for node in ast.walk(body))


def own_tests(path: str) -> list[str]:
    """Where the tests of a module can be, below ``tests/``: a test or cases with its name, or the test of its package.

    A class of clean-up, ``x_name.py``, has the name without its letter; other private modules lose the underscore.
    """
    place = PurePosixPath(path.removeprefix("gpustack/"))
    place = place.parent if place.name == "__init__.py" else place.with_suffix("")
    room, name = PurePosixPath("unit") / place.parent, place.name
    if room.name == "rules":
        room, name = room.parent, re.sub(r"^[a-z]?_", "", name) if f"{name}"[1:2] == "_" else name
        cases = [f"{room}/cases/{place.name.replace('_', '-')}.yaml"]
    else:
        cases = [f"{room}/{name}.yaml", f"{room}/cases/{name.replace('_', '-')}.yaml"]
    return [f"{room}/test_{name.strip('_')}.py", *cases, f"{room.parent}/test_{room.name}.py"]


def tests_of(path: str, present: Container[str], listed: Mapping[str, Sequence[str]]) -> tuple[list[str], str]:
    """The tests of a module, and the entry of the list that names them; empty if the module has tests of its own.

    :param present: the paths below ``tests/``.
    """
    if own := [name for name in own_tests(path) if name in present]:
        return own[:1], ""
    entry = next((key for key in listed if fnmatch.fnmatch(path.removeprefix("gpustack/"), key)), "")
    return list(listed.get(entry, ())), entry


def relying(code: Iterable[Source], present: Container[str], listed: Mapping[str, Sequence[str]]) -> list[str]:
    """The modules with a decision whose tests are those of an entry."""
    return [source.path for source in code if has_decision(source) and tests_of(source.path, present, listed)[1]]


def untested(code: Iterable[Source], present: Container[str], listed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Modules with a decision and without tests, entries that no module needs, and tests of entries that are gone."""
    used = set()
    for source in code:
        tests, entry = tests_of(source.path, present, listed)
        if has_decision(source):
            used.add(entry)
            if not tests:
                yield source.breach(1, f"has a decision and no test: expected tests/{own_tests(source.path)[0]}")
    for entry, names in listed.items():
        if entry not in used:
            yield f"tests/mirrors.toml: {entry}: no module needs this entry"
        yield from (f"tests/mirrors.toml: {entry}: {name} does not exist" for name in names if name not in present)


def sorted_by_length(code: Iterable[Source]) -> list[tuple[int, str]]:
    """Modules by length, the longest first; for the closing notes of changes."""
    return sorted(((source.text.count("\n"), source.path) for source in code), reverse=True)


def surface(text: str, path: str, allowed: Collection[str]) -> Iterator[str]:
    """Imports of gpustack in a playbook's plug-in beyond the documented modules."""
    source = Source(path, text)
    for use in source.imports:
        if use.name.startswith("gpustack.") and not any(f"{use.name}.".startswith(f"{name}.") for name in allowed):
            yield source.breach(use.line, f"imports {use.name}, expected one of {', '.join(sorted(allowed))}")


# Commands to paste

_PROGRAMS = (
    r"(?:openstack|nova-manage|systemctl|virsh|kubectl|mdevctl|kernel-install|apt-get|dnf|pip) [a-z-]"
    r"|(?:mkdir|rm|ls|df|ln|ssh|mv|cp|chown|grubby|ansible-playbook|update-initramfs|dracut) (?:-|/|$)"
    r"|ssh-key\w+ |(?:rmmod|cat|cd|chmod|scp|rsync|sudo) (?:\d\d|$)|modprobe -|driverctl (?:un)?set-"
    r"|ansible-playbook [\w./-]+\.yml"
)


def pasted(code: Iterable[Source], nouns: Collection[str]) -> Iterator[str]:
    """Values in commands of texts that are not one quoted word: ``f"run: openstack server show {quoted(name)}"``.

    A constant of the module and a name that only holds quoted words are words, too. The command ends with its
    backticks, its parenthesis or its part of the sentence.

    :param nouns: the first words of gpustack's own commands.
    """
    start = _start(nouns)
    for source in code:
        assigned = [node for node in source.nodes if isinstance(node, ast.Assign) and _is_word(node.value)]
        words = {ast.unparse(node.targets[0]) for node in assigned}
        for node in source.nodes:
            for value in _interpolated(node, start):
                name = ast.unparse(value)
                if not _is_word(value) and name not in words and not re.fullmatch(r"_?[A-Z_]+", name):
                    yield source.breach(value.lineno, f"{name} is in a command to paste: use base.text.quoted")


def unquoted(template: str, nouns: Collection[str]) -> list[str]:
    """The placeholders of a finding's text that are in a command, but not alone between its backticks' spaces.

    :func:`gpustack.base.findings.finding` quotes the values of what is in backticks.
    """
    start = _start(nouns)
    outside = [place.group() for place in re.finditer(r"\{\w+\}", template) if _open(template[: place.start()], start)]
    ticked = template.split("`")[1::2]
    return [name for name in outside if not any(name in part and '"' not in part for part in ticked)]


def _start(nouns: Collection[str]) -> re.Pattern[str]:
    return re.compile(rf"`[\w./-]+ |(?:^|[\s(])(?:{_PROGRAMS}|gpustack (?:{'|'.join(sorted(nouns))})\b)")


def _is_word(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("quoted", "join", "shlex.join")


def _interpolated(node: ast.AST, start: re.Pattern[str]) -> Iterator[ast.expr]:
    """The values that a text places in its commands; of ``%`` and ``format``, the text itself."""
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        text = ""
        for part in _parts(node):
            if isinstance(part, ast.Constant):
                text += str(part.value)
            else:
                if _open(text, start):
                    yield part
                text += "-"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = ast.unparse(node.func.value).strip("f\"'")
        if any(_open(text[: place.start()], start) for place in re.finditer(r"\{", text)):
            yield node.func.value


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.JoinedStr):
        yield from (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        yield from (*_parts(node.left), *_parts(node.right))
    else:
        yield node


def _open(text: str, start: re.Pattern[str]) -> bool:
    """Whether a text ends in a command."""
    for found in start.finditer(text):
        ticked = (text[: found.start() + 1].count("`")) % 2
        if not re.search("`" if ticked else r"`|; (?!\w+=)|[.,:] |\)", text[found.end() :]):
            return True
    return False

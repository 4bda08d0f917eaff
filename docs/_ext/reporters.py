"""The commands and playbooks that can report a finding, read from the code. Nothing is executed.

A command refers to definitions (functions, classes, constants), and these to others; a definition reports the codes
that it names itself or in a file of ``gpustack/data`` that it reads. A playbook refers to the action plugins of its
tasks, a command of hosts to its playbooks. Conditions are not evaluated, and a class counts with all its methods.
"""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).parents[2]
_PLAYBOOKS = TOP / "playbooks"
_INSTALLED = "ansible_collections.nova_gpustack.passthrough.plugins"
_CODE = re.compile(r"GPU\d{3}")
_LOOK_UP = ("explain", "schema")
"""Commands that print any code, and report none about a host or a cloud."""

Place = tuple[str, str]
"""A module and a name in it; no name for the module itself."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """The statements of a module by the names that they define, and the dotted names of its imports."""

    statements: Mapping[str, list[ast.stmt]]
    imports: Mapping[str, str]


@dataclass(kw_only=True)
class Named:
    """The codes, places and playbooks that a definition names."""

    codes: set[str] = field(default_factory=set)
    places: set[Place | None] = field(default_factory=set)
    playbooks: set[str] = field(default_factory=set)


@functools.cache
def reporters() -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The commands and the playbooks of each code."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commands: dict[str, list[str]] = {code: [] for code in _codes().values()}
    playbooks: dict[str, list[str]] = {code: [] for code in _codes().values()}
    of_playbook = {path.name: _of_playbook(path) for path in sorted(_PLAYBOOKS.glob("*.yml"))}
    for playbook, reported in of_playbook.items():
        for code in reported:
            playbooks[code].append(playbook)
    for name, place in sorted(project["entry-points"]["gpustack.cli"].items()):
        codes, named = _reached(_place(place))
        for code in codes.union(*(of_playbook[playbook] for playbook in named)):
            if name not in _LOOK_UP:
                commands[code].append(name.replace("_", " "))
    return {code: (tuple(commands[code]), tuple(playbooks[code])) for code in commands}


def _of_playbook(path: Path) -> set[str]:
    """The codes of a playbook: those of the action plugins in its tasks."""
    codes: set[str] = set()
    todo, seen = [path], {path}
    while todo:
        current = todo.pop()
        text = re.sub(r"(?m)(^| )#.*$", "", current.read_text(encoding="utf-8"))
        for plugin in re.findall(r"passthrough\.(gpustack_\w+):", text):
            codes |= _reached((f"playbooks.action_plugins.{plugin}", ""))[0]
        roles = re.findall(r"name: nova_gpustack\.passthrough\.(\w+)(?:\n +tasks_from: (\w+))?", text)
        files = [_PLAYBOOKS / "roles" / role / "tasks" / f"{tasks or 'main'}.yml" for role, tasks in roles]
        if current.parent.name == "tasks":
            files += [
                current.with_name(name)
                for name in re.findall(r"(?:_tasks|file|gpustack_verification): (\w+\.yml)", text)
            ]
        found = {file for file in files if file.exists()} - seen
        seen |= found
        todo += found
    return codes


@functools.cache
def _reached(start: Place | None) -> tuple[frozenset[str], frozenset[str]]:
    """The codes and the playbooks of a definition, and of all to which it leads."""
    todo = [start]
    seen: set[Place | None] = {None}
    codes: set[str] = set()
    playbooks: set[str] = set()
    while todo:
        place = todo.pop()
        if place not in seen:
            seen.add(place)
            named = _named(place)
            codes |= named.codes
            playbooks |= named.playbooks
            todo += named.places
    return frozenset(codes), frozenset(playbooks)


@functools.cache
def _named(definition: Place) -> Named:
    module, name = definition
    source = _modules()[module]
    if not name:
        return Named(places={(module, each) for each in source.statements})
    named = Named()
    for statement in source.statements.get(name, ()):
        for node in _nodes(statement):
            match node:
                case ast.Attribute(value=ast.Name(id="Code"), attr=attribute) if attribute in _codes():
                    named.codes.add(_codes()[attribute])
                case ast.Attribute(value=ast.Name(id=used), attr=attribute):
                    imported = source.imports.get(used)
                    base = (module, used) if used in source.statements else _place(imported)
                    named.places.add(_place(f"{imported}.{attribute}") if base and not base[1] else base)
                case ast.Name(id=used):
                    named.places.add((module, used) if used in source.statements else _place(source.imports.get(used)))
                case ast.Constant(value=str(text)):
                    words = {text, *_data().get(text, ())}
                    named.codes |= {word for word in words if _CODE.fullmatch(word)}
                    named.places |= {_place(word) for word in words}
                case ast.Assign(targets=[ast.Name(id="playbook" | "first")]):
                    files = {f"{each.value!s}.yml" for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
                    named.playbooks |= {file for file in files if (_PLAYBOOKS / file).exists()}
    named.places -= {None, ("gpustack.base.codes", "Code")}
    return named


def _nodes(root: ast.AST) -> Iterator[ast.AST]:
    """A node and those in it, without annotations and the name before a dot."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if name not in ("annotation", "returns"):
                todo += [inner for inner in (value if type(value) is list else [value]) if isinstance(inner, ast.AST)]


@functools.cache
def _place(dotted: str | None) -> Place | None:
    """The place of a dotted name such as ``gpustack.pci.catalogue.cards``; None for one of another distribution."""
    name = (dotted or "").replace(_INSTALLED, "playbooks").replace(":", ".")
    if name in _modules():
        return name, ""
    module, _, last = name.rpartition(".")
    if module not in _modules():
        return None
    imported = _modules()[module].imports
    return _place(imported[last]) if last in imported else (module, last)


@functools.cache
def _modules() -> Mapping[str, Module]:
    found = {}
    for root in ("gpustack", "playbooks/action_plugins", "playbooks/plugin_utils"):
        for path in (TOP / root).rglob("*.py"):
            name = ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
            found[name] = _module(ast.parse(path.read_text(encoding="utf-8")))
    return found


def _module(tree: ast.Module) -> Module:
    imports: dict[str, str] = {}
    statements: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imports |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets):
                names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
            case _:
                names = []
        for name in names:
            statements.setdefault(name, []).append(statement)
    return Module(statements=statements, imports=imports)


@functools.cache
def _codes() -> Mapping[str, str]:
    """The codes by name."""
    text = (TOP / "gpustack/base/codes.py").read_text(encoding="utf-8")
    return dict(re.findall(r'^    (\w+) = "(GPU\d{3})"', text, re.MULTILINE))


@functools.cache
def _data() -> Mapping[str, set[str]]:
    """The codes and dotted names in each file of data, by the file's name."""
    found = {}
    for path in (TOP / "gpustack/data").rglob("*.*l*"):
        if path.parent.name != "findings" and path.suffix in (".toml", ".jsonl"):
            text = path.read_text(encoding="utf-8")
            names = {_codes()[word] for word in re.findall(r'= "(\w+)"', text) if word in _codes()}
            found[path.name] = names | set(re.findall(r"\bGPU\d{3}\b|\bgpustack(?:\.\w+)+:\w+", text))
    return found

"""Evaluate the literals of Nova's source without importing it: names, lists, calls of oslo.config's option classes.

A name is evaluated from the statements of its module that bind or extend it. Imports of Nova's own modules are
followed; everything else is a :class:`Symbol`. An expression that is neither a literal nor listed in
:data:`COMPUTED` raises :class:`StopError` with its file and line, so that no option is lost silently.
"""

from __future__ import annotations

import ast
import functools
import operator
import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# ruff: noqa: ANN401 - values of Nova's source have any type

COMPUTED = {
    "socket.gethostname",
    "socket.getfqdn",
    "oslo_utils.netutils.get_my_ipv4",
    "os.path.abspath",
    "sys.prefix",
    "nova.compute.arch.ALL",
}
"""Calls and values that depend on the machine, or on libraries."""
LIBRARIES = (
    "oslo_config",
    "keystoneauth1",
    "oslo_cache",
    "oslo_db",
    "oslo_log",
    "oslo_policy",
    "oslo_service",
    "castellan",
)
"""Libraries whose functions and classes are recorded as they are called."""
CONSTANTS = {"oslo_utils.units.Ki": 1 << 10, "oslo_utils.units.Mi": 1 << 20, "oslo_utils.units.Gi": 1 << 30}
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
_METHODS = ("join", "format", "replace", "items", "keys", "values", "copy", "index")
_BUILTINS: Mapping[str, Any] = {"str": "str", "int": "int", "bool": "bool", "None": None}
_CALLED: Mapping[str, Callable[..., Any]] = {cls.__name__: cls for cls in (dict, float, int, list, set, tuple)}


class StopError(Exception):
    """An expression that the tool can't evaluate."""


@dataclass(frozen=True)
class Symbol:
    """A name of another library, such as ``oslo_config.cfg.StrOpt``."""

    path: str


@dataclass(frozen=True)
class Computed:
    """A value that is known only when the code runs."""

    expression: str

    def __mod__(self, _: object) -> Computed:
        return self


@dataclass(frozen=True)
class Call:
    """A call of a library's class: an option, a group, a type."""

    function: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the class: ``StrOpt``."""
        return self.function.rpartition(".")[2]

    def get(self, key: str, default: Any = None) -> Any:
        """A keyword argument."""
        return self.keywords.get(key, default)


@dataclass(frozen=True)
class Function:
    """A function of Nova."""

    module: Module
    node: ast.FunctionDef


@dataclass(frozen=True)
class Class:
    """A class of Nova."""

    module: Module
    node: ast.ClassDef

    @property
    def bases(self) -> list[str]:
        """The last part of each base's name."""
        return [ast.unparse(base).rpartition(".")[2] for base in self.node.bases]


@dataclass(frozen=True)
class Frame:
    """A value that the code reads from the configuration, such as ``conf.devices.enabled_mdev_types``."""

    path: str


@dataclass(frozen=True)
class Dynamic:
    """A text with a ``*`` where the code inserts each value of an option (``path``: ``group/name``)."""

    text: str
    path: str


class Tree:
    """The source of one version: the parent of the package ``nova``."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._modules: dict[str, Module] = {}

    def module(self, name: str) -> Module | None:
        """A module of Nova or Placement by its dotted name; None if the version has no such module."""
        if name not in self._modules:
            base = self.top / name.replace(".", "/")
            path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
            if path is None:
                return None
            self._modules[name] = Module(self, name, path)
        return self._modules[name]

    def modules(self, package: str) -> Iterator[Module]:
        """The modules of a package, without those below."""
        for path in sorted((self.top / package.replace(".", "/")).glob("*.py")):
            module = self.module(package if path.stem == "__init__" else f"{package}.{path.stem}")
            assert module is not None  # noqa: S101 - the file exists
            yield module


class Module:
    """One file of Nova."""

    def __init__(self, tree: Tree, name: str, path: Path) -> None:
        self.tree, self.name, self.path = tree, name, path
        self.body = ast.parse(path.read_text(encoding="utf-8")).body
        self.source = str(path.relative_to(tree.top))
        self._values: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def classes(self) -> Iterator[Class]:
        """The classes of the file."""
        return (Class(self, node) for node in self.body if isinstance(node, ast.ClassDef))

    def has(self, name: str) -> bool:
        """Whether the file defines a function or a class of this name."""
        return any(isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name for node in self.body)

    def value(self, name: str) -> Any:
        """The value of a name of the module."""
        if name not in self._values:
            self._values[name] = self._bound(name)
        return self._values[name]

    def _bound(self, name: str) -> Any:
        found = False
        for node in self.body:
            value = self._binding(node, name)
            if value is not None:
                self._values[name] = value[0]
                found = True
            elif found and _extends(node, name):
                Evaluation(self, {}).run([node])
        if found:
            return self._values[name]
        if name in _BUILTINS:
            return _BUILTINS[name]
        raise StopError(f"{self.source}: {name} is not defined in the file")

    def _binding(self, node: ast.stmt, name: str) -> tuple[Any] | None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    return (Evaluation(self, {}).value(node.value),)
                if isinstance(target, ast.Tuple) and name in [ast.unparse(part) for part in target.elts]:
                    index = [ast.unparse(part) for part in target.elts].index(name)
                    return (Evaluation(self, {}).value(node.value)[index],)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and node.value:
            return (Evaluation(self, {}).value(node.value),)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return (Function(self, node),)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (Class(self, node),)
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    return (self._imported(alias.name if alias.asname else name),)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return (self._imported(f"{node.module}.{alias.name}"),)
        return None

    def _imported(self, path: str) -> Any:
        if path.partition(".")[0] in ("nova", "placement"):
            if module := self.tree.module(path):
                return module
            parent, _, name = path.rpartition(".")
            if parent and (module := self.tree.module(parent)):
                return Symbol("gettext") if name == "_" else module.value(name)
        return Symbol(path)


def _extends(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and node.target.id == name
    call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return call is not None and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == name


class Evaluation:
    """Evaluates expressions of a module with local names; ``calls`` records the calls of methods of ``conf``."""

    def __init__(self, module: Module, names: Mapping[str, Any], calls: list[Call] | None = None) -> None:
        self.module, self.names = module, dict(names)
        self.calls = calls if calls is not None else []

    def stop(self, node: ast.AST) -> StopError:
        return StopError(f"{self.module.source}:{getattr(node, 'lineno', '?')}: can't evaluate {ast.unparse(node)}")

    def run(self, body: Sequence[ast.stmt]) -> Any:
        """Run statements; return the value of ``return``."""
        for node in body:
            if isinstance(node, ast.Return):
                return self.value(node.value) if node.value else None
            self._statement(node)
        return None

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.names[node.targets[0].id] = self.value(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            target = self._name(node.target)
            target += self.value(node.value)
            self.names[node.target.id] = target
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            items = self.value(node.iter)
            for item in [items] if isinstance(items, Frame) else items:
                self.names[node.target.id] = item
                self.run(node.body)
        elif isinstance(node, ast.If):
            self.run(node.body if self.value(node.test) else node.orelse)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                self.names[name] = self.module._binding(node, name)[0]  # type: ignore[index]
        elif not isinstance(node, ast.Pass):
            raise self.stop(node)

    @functools.cached_property
    def _handlers(self) -> Mapping[type[ast.expr], Callable[[Any], Any]]:
        return {
            ast.Constant: lambda node: node.value,
            ast.Name: self._name,
            ast.List: lambda node: self._items(node.elts),
            ast.Tuple: lambda node: tuple(self._items(node.elts)),
            ast.Set: lambda node: self._items(node.elts),
            ast.Dict: self._dictionary,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.BinOp: self._operation,
            ast.UnaryOp: self._unary,
            ast.Subscript: self._subscript,
            ast.Lambda: lambda _: Computed("lambda"),
            ast.JoinedStr: self._joined,
            ast.ListComp: self._comprehension,
            ast.Compare: self._compare,
            ast.IfExp: lambda node: self.value(node.body if self.value(node.test) else node.orelse),
        }

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        handler = self._handlers.get(type(node))
        if handler is None:
            raise self.stop(node)
        return handler(node)

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in _CALLED:
            return Symbol(node.id)
        return self.module.value(node.id)

    def _items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                values += self.value(node.value)
            else:
                values.append(self.value(node))
        return values

    def _dictionary(self, node: ast.Dict) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            values |= {self.value(key): self.value(value)} if key else self.value(value)
        return values

    def _attribute(self, node: ast.Attribute) -> Any:
        of = self.value(node.value)
        if isinstance(of, Module):
            return self.module.tree.module(f"{of.name}.{node.attr}") or of.value(node.attr)
        if isinstance(of, Class):
            return _class_value(of, node.attr)
        if isinstance(of, Frame):
            return Frame(f"{of.path}/{node.attr}".lstrip("/"))
        if isinstance(of, Call):
            return of.arguments[0] if node.attr in ("name", "dest") else self._raise(node)
        if isinstance(of, Symbol):
            path = f"{of.path}.{node.attr}"
            if path in CONSTANTS:
                return CONSTANTS[path]
            return Computed(path) if path in COMPUTED else Symbol(path)
        return self._raise(node)

    def _raise(self, node: ast.AST) -> Any:
        raise self.stop(node)

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):
            method = self._method(node, node.func)
            if method is not None:
                return method[0]
        function = self.value(node.func)
        if isinstance(function, Computed):
            return function
        arguments = self._items(node.args)
        keywords = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        if isinstance(function, Function):
            return self._run(function, arguments, keywords)
        if isinstance(function, Class):
            if "ExtraSpecValidator" in function.node.name:
                return Call(function.node.name, tuple(arguments), keywords)
            return Computed(function.node.name)
        if isinstance(function, Symbol):
            return self._symbol(node, function.path, arguments, keywords)
        raise self.stop(node)

    def _method(self, node: ast.Call, function: ast.Attribute) -> tuple[Any] | None:
        """The result of a method of the recorder ``conf``, a list, a dictionary or a text; None for other calls."""
        name = function.attr
        if name == "enrich_help_text":
            return (None,)
        of = self.value(function.value)
        if isinstance(of, Frame):
            arguments = self._items(node.args)
            keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
            self.calls.append(Call(name, tuple(arguments), keywords))
            return (None,)
        if isinstance(of, list) and name in ("extend", "append"):
            (value,) = self._items(node.args)
            (of.extend if name == "extend" else of.append)(value)
            return (None,)
        if isinstance(of, str | dict | list) and name in (
            "join",
            "format",
            "replace",
            "items",
            "keys",
            "values",
            "copy",
            "index",
        ):
            return (getattr(of, name)(*self._items(node.args)),)
        return None

    def _symbol(self, node: ast.Call, path: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if path in _CALLED:
            return _CALLED[path](*arguments, **keywords)
        if path in ("copy.deepcopy", "copy.copy", "gettext"):
            return list(arguments[0]) if isinstance(arguments[0], list) else arguments[0]
        if path == "itertools.chain":
            return [item for argument in arguments for item in argument]
        if path == "os.path.join":
            computed = [part for part in arguments if isinstance(part, Computed)]
            return computed[0] if computed else os.path.join(*arguments)  # noqa: PTH118 - as Nova writes it
        if path.partition(".")[0] in LIBRARIES:
            return Call(path, tuple(arguments), keywords)
        raise self.stop(node)

    def _run(self, function: Function, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        parameters = function.node.args
        names = [argument.arg for argument in parameters.args]
        bound = dict(zip(names, arguments, strict=False)) | keywords
        inner = Evaluation(function.module, bound, self.calls)
        for name, default in zip(names[::-1], parameters.defaults[::-1], strict=False):
            if name not in bound:
                inner.names[name] = inner.value(default)
        if parameters.vararg:
            inner.names[parameters.vararg.arg] = arguments[len(names) :]
        if function.node.name in ("register_ksa_opts", "get_ksa_adapter_opts", "enrich_help_text", "_dummy_opt"):
            return Call(function.node.name, tuple(arguments), keywords)
        return inner.run(function.node.body)

    def _operation(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, str) and isinstance(right, Frame):
            return Dynamic(left.replace("%s", "*") if isinstance(node.op, ast.Mod) else f"{left}*", right.path)
        for part in (left, right):
            if isinstance(part, Computed):
                return part
        if isinstance(left, list | tuple) or isinstance(right, list | tuple):
            left, right = ([part] if isinstance(part, Call) else list(part) for part in (left, right))
        return _OPERATORS[type(node.op)](left, right)

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        return -value if isinstance(node.op, ast.USub) else not value

    def _subscript(self, node: ast.Subscript) -> Any:
        of = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            return of[:]
        return of[self.value(node.slice)]

    def _joined(self, node: ast.JoinedStr) -> Any:
        parts = [part.value if isinstance(part, ast.Constant) else self.value(part.value) for part in node.values]  # type: ignore[attr-defined]
        return "".join(map(str, parts))

    def _compare(self, node: ast.Compare) -> bool:
        left, right = self.value(node.left), self.value(node.comparators[0])
        comparisons = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not}
        comparison = comparisons.get(type(node.ops[0]))
        if comparison is None or len(node.ops) > 1:
            raise self.stop(node)
        return bool(comparison(left, right))

    def _comprehension(self, node: ast.ListComp) -> Any:
        (generator,) = node.generators
        items = self.value(generator.iter)
        if isinstance(items, Call | Symbol | Computed):
            return Computed(ast.unparse(generator.iter))
        values = []
        for item in items:
            targets = generator.target.elts if isinstance(generator.target, ast.Tuple) else [generator.target]
            parts = item if isinstance(generator.target, ast.Tuple) else [item]
            inner = Evaluation(self.module, {**self.names, **dict(zip(map(ast.unparse, targets), parts, strict=True))})
            if all(inner.value(test) for test in generator.ifs):
                values.append(inner.value(node.elt))
        return values


def _class_value(of: Class, name: str) -> Any:
    names: dict[str, Any] = {}
    for node in of.node.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            key = node.targets[0].id
            if key == name:
                return _in_class(of, names, node.value)
            if isinstance(node.value, ast.Constant | ast.Tuple | ast.List):
                names[key] = _in_class(of, names, node.value)
    raise StopError(f"{of.module.source}: {of.node.name} has no {name}")


def _in_class(of: Class, names: Mapping[str, Any], node: ast.expr) -> Any:
    return Evaluation(of.module, names).value(node)

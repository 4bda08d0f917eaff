"""Small faults of a source: each changes one expression or statement on one line."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A fault.

    :ivar text: the complete source with the fault.
    """

    line: int
    before: str
    after: str
    text: str

    def describe(self) -> str:
        """The change in one line."""
        return f"{self.before} → {self.after}"


def mutations(source: str, lines: Collection[int] | None = None) -> Iterator[Mutation]:
    """The faults of a source, in the order of its lines.

    :param lines: the lines that tests run; None for all.
    """
    tree = ast.parse(source)
    for node in _code(tree):
        if lines is not None and node.lineno not in lines:
            continue
        for changed in _changed(node):
            before, after = ast.get_source_segment(source, node) or "", ast.unparse(changed)
            if isinstance(node, ast.expr):
                after = f"({after})"
            yield Mutation(line=node.lineno, before=before, after=after, text=_replaced(source, node, after))


def _code(tree: ast.Module) -> list[ast.stmt | ast.expr]:
    """The nodes that may change: in functions and constants of modules, on one line; no annotations, no f-strings."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        annotations = [getattr(node, name, None) for name in ("annotation", "returns")]
        hidden = [node, *annotations] if isinstance(node, ast.JoinedStr) else annotations
        for part in [*hidden, *getattr(node, "decorator_list", [])]:
            if isinstance(part, ast.AST):
                skipped |= {id(inner) for inner in ast.walk(part)}
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.expr) and id(node) not in skipped and node.lineno == node.end_lineno
    ]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def _changed(node: ast.stmt | ast.expr) -> Iterator[ast.stmt | ast.expr]:
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARED:
            new.ops = [_COMPARED[type(operator)]()]
            yield new
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
            yield new
        case ast.UnaryOp(op=ast.Not()):
            yield new.operand
        case ast.Constant(value=bool()):
            new.value = not new.value
            yield new
        case ast.Constant(value=int() as number):
            new.value = number + 1
            yield new
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(value=ast.Constant(value=None))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.IfExp(test=ast.Name() | ast.Attribute() | ast.Call()):
            new.test = ast.UnaryOp(op=ast.Not(), operand=new.test)
            yield new


def _replaced(source: str, node: ast.stmt | ast.expr, after: str) -> str:
    lines = source.splitlines(keepends=True)
    line = lines[node.lineno - 1].encode()
    lines[node.lineno - 1] = (line[: node.col_offset] + after.encode() + line[node.end_col_offset :]).decode()
    return "".join(lines)

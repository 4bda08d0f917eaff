"""The part of the JSON schema for a path of a spec, and its description for a message."""

from typing import Any

from gpustack.spec.problems import Path, listed, quoted
from gpustack.spec.schema import resolve, schema

Node = dict[str, Any]


def at(path: Path, data: object) -> Node | None:
    """The part of the schema for a path of ``data``; None if the schema has none."""
    node = resolve(schema())
    for step in path:
        below = _step(_variant(node, data), step)
        if below is None:
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


def words(node: Node | None) -> list[str]:
    """The permitted words; empty if they are not fixed."""
    return [value for value in node.get("enum", ()) if isinstance(value, str)] if node else []


def takes_names(node: Node) -> bool:
    """Whether a list of names is one of the permitted variants."""
    variants = [resolve(variant) for variant in node.get("anyOf", ())]
    return any(resolve(variant.get("items", {})).get("type") == "string" for variant in variants)


def name_of_key(node: Node | None) -> str:
    """The expected form of a mapping's keys."""
    return _expectation(resolve(node["propertyNames"])) if node and "propertyNames" in node else "text"


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


def _list(node: Node) -> str:
    return f"a list, each entry {describe(node['items'])}"


def _mapping(node: Node) -> str:
    *first, last = node.get("required", [""])
    return "a mapping" + (f" with {' and '.join([', '.join(first), last] if first else [last])}" if last else "")


_KINDS = {"boolean": lambda _: "true or false", "array": _list, "object": _mapping}

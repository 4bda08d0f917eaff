"""The JSON schema of ``gpustack.yaml``: generated from the model, shipped for editors, and read for messages.

``python -m gpustack.spec.schema`` regenerates ``schema.json`` after a change of the model.
"""

import functools
import json
from pathlib import Path
from typing import Any

SCHEMA_ID = "urn:gpustack:spec:1"
SCHEMA_FILE = Path(__file__).with_name("schema.json")


@functools.cache
def schema() -> dict[str, Any]:
    """The shipped JSON schema (draft 2020-12)."""
    document: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return document


def made() -> dict[str, Any]:
    """The JSON schema generated from the model; a test compares the shipped one with it."""
    from gpustack.spec.model import Spec

    generated = _tidy(Spec.model_json_schema(mode="validation"))
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "gpustack.yaml, version 1",
    }
    return {**head, **{key: value for key, value in generated.items() if key not in head}}


def _tidy(node: Any) -> Any:  # noqa: ANN401
    """Drop entries without information for an author, and write keyed mappings alike for all versions of pydantic.

    ``null`` means "not given" in the model; in the file, the key is left out instead.
    """
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "patternProperties" in node:
        ((pattern, value),) = node["patternProperties"].items()
        names = {"type": "string", "pattern": pattern, **node.get("propertyNames", {})}
        others_kept = {k: v for k, v in node.items() if k not in ("patternProperties", "propertyNames")}
        node = {**others_kept, "propertyNames": names, "additionalProperties": value}
    if {"type": "null"} in node.get("anyOf", []):
        others = [kind for kind in node["anyOf"] if kind != {"type": "null"}]
        others_kept = {k: v for k, v in node.items() if k != "anyOf"}
        node = {**others[0], **others_kept} if len(others) == 1 else {**others_kept, "anyOf": others}
    tidied: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            tidied[key] = {name: _tidy(entry) for name, entry in value.items()}
        elif not isinstance(value, {"title": str, "default": dict | list | None}.get(key, ())):
            tidied[key] = _tidy(value)
    return tidied


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    """A part of the schema with its reference resolved; keys beside the reference are kept."""
    while "$ref" in node:
        target = schema()["$defs"][node["$ref"].rpartition("/")[2]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def main() -> None:
    """Write ``schema.json``."""
    SCHEMA_FILE.write_text(json.dumps(made(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

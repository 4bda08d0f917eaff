"""The schema that is shipped, and the reference: both say what the model says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spec_reference
import yaml
from jsonschema import Draft202012Validator

from gpustack.spec.load import examine, parse_spec
from gpustack.spec.schema import SCHEMA_FILE, made, schema

CASES = Path(__file__).parent / "cases"


def test_the_shipped_schema_is_the_models() -> None:
    """``python -m gpustack.spec.schema`` writes it again."""
    assert json.loads(SCHEMA_FILE.read_text(encoding="utf-8")) == made()


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())
    assert schema()["$id"].startswith("urn:")
    assert "version 1" in schema()["title"]


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from objects(value)


def test_every_key_is_described_and_none_can_be_null() -> None:
    properties = [(name, entry) for node in objects(schema()) for name, entry in node.get("properties", {}).items()]
    assert len(properties) > 12
    for name, entry in properties:
        assert entry.get("description", "").endswith("."), name
        assert {"type": "null"} not in entry.get("anyOf", []), name


@pytest.mark.parametrize("case", ["valid-in-full", "warnings", "schema", "patterns", "list", "odd-version"])
def test_editors_and_the_loader_agree(case: str) -> None:
    """The editor's check with the schema finds a fault where the loader does, names and matches aside."""
    text = (CASES / f"{case}.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    faults = list(Draft202012Validator(schema()).iter_errors(json.loads(json.dumps(data, default=str))))
    assert bool(faults) == (examine(text, case).spec is None)


def test_the_references_example_is_valid() -> None:
    assert set(parse_spec(spec_reference.EXAMPLE, "example").models) == {"k4200", "m60"}


def test_the_reference_has_every_key_of_the_schema() -> None:
    text = spec_reference.markdown()
    for node in objects(schema()):
        for key in node.get("properties", {}):
            assert f"| `{key}` |" in text
    assert "## `models.MODEL.match`" in text
    assert "## `hosts.HOST`" in text

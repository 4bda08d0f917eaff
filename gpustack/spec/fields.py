"""Common parts of the spec's model: the base class, names, and texts of the JSON schema."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, WithJsonSchema

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


def described(pattern: str, expected: str, *examples: str) -> WithJsonSchema:
    """The JSON schema of text with a pattern, and the expectation that an editor shows."""
    schema = {"type": "string", "pattern": pattern, "patternErrorMessage": f"expected {expected}"}
    return WithJsonSchema(schema | ({"examples": list(examples)} if examples else {}))


Name = Annotated[
    str,
    StringConstraints(pattern=NAME_PATTERN),
    described(NAME_PATTERN, "a name of 1 to 64 letters, digits, '_', '.' and '-'", "k4200"),
]
NumaPolicy = Literal["legacy", "preferred", "required", "socket"]
"""How strictly an instance must be on its devices' NUMA nodes (``nova/objects/fields.py``: PCINUMAAffinityPolicy)."""


class SpecSection(BaseModel):
    """The base of all sections: frozen, and without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, ignored_types=(cached_property,)
    )

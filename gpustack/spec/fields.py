"""Common parts of the spec's model: the base class, names, and texts of the JSON schema."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from gpustack.spec.patterns import MAX_LENGTH, HostPattern

HEX4_PATTERN = r"^[0-9A-Fa-f]{4}$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
# The part that an editor can check; HostPattern checks the ends of ranges.
HOST_PATTERN = (
    r"^(group:[A-Za-z0-9_][A-Za-z0-9_.-]*$|[A-Za-z0-9_*?]|\[[0-9A-Za-z]*:[0-9A-Za-z]+(:[0-9]+)?\])"
    r"([A-Za-z0-9_.*?-]|\[[0-9A-Za-z]*:[0-9A-Za-z]+(:[0-9]+)?\])*$"
)


def described(pattern: str, expected: str, *examples: str) -> WithJsonSchema:
    """The JSON schema of text with a pattern, and the expectation that an editor shows."""
    schema = {"type": "string", "pattern": pattern, "patternErrorMessage": f"expected {expected}"}
    return WithJsonSchema(schema | ({"examples": list(examples)} if examples else {}))


def matching(pattern: str, expected: str, *examples: str) -> Any:  # noqa: ANN401 - pydantic's own type of a field
    """Text that has to match a pattern, described in the JSON schema."""
    return Field(pattern=pattern, json_schema_extra=described(pattern, expected, *examples).json_schema)


def integer(least: int, most: int, expected: str) -> Any:  # noqa: ANN401 - pydantic's own type of a field
    """A number within limits, described in the JSON schema."""
    return Field(strict=True, ge=least, le=most, json_schema_extra={"patternErrorMessage": f"expected {expected}"})


Name = Annotated[str, matching(NAME_PATTERN, "a name of 1 to 64 letters, digits, '_', '.' and '-'", "k4200")]
Hex4 = Annotated[str, matching(HEX4_PATTERN, "four hexadecimal digits in quotes"), AfterValidator(str.lower)]

Pattern = Annotated[
    str,
    AfterValidator(lambda text: HostPattern.parse(text).text),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": HOST_PATTERN,
            "maxLength": MAX_LENGTH,
            "patternErrorMessage": "expected a host name or a pattern like gpu-[01:16].example.org or gpu-*",
            "examples": ["gpu-[01:16].example.org"],
        }
    ),
]
_BOOT_CHANGE = r"^[+-][^\s\x00-\x1f\x7f]{1,1024}$"
BootChange = Annotated[str, matching(_BOOT_CHANGE, "a sign and a kernel argument", "-quiet", "+mitigations=off")]
NumaPolicy = Literal["legacy", "preferred", "required", "socket"]
"""How strictly an instance must be on its devices' NUMA nodes (``nova/objects/fields.py``: PCINUMAAffinityPolicy)."""


class SpecSection(BaseModel):
    """The base of all sections: frozen, and without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, ignored_types=(cached_property,)
    )

"""Problems that pydantic finds, as lines of a message."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, ValidationError

from gpustack.base.validation import problem


def small(text: str) -> str:
    if len(text) > 5:
        raise ValueError(f"{text} is long")
    return text


class Part(BaseModel):
    address: Annotated[str, AfterValidator(small)]


class Whole(BaseModel):
    parts: list[Part] = []
    named: dict[str, Part] = {}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"parts": [{}]}, "$.parts[0].address: field required"),
        ({"named": {"A\nB": {"address": 1}}}, "$.named.A\\nB.address: input should be a valid string"),
        ({"parts": [{"address": "GPU 1\n  → x"}]}, "$.parts[0].address: value error, GPU 1\\n  → x is long"),
        ({"named": {"k" * 300: 1}}, f"$.named.{'k' * 256}: input should be"),
    ],
)
def test_a_problem_is_one_line(value: object, line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(value)
    found = problem(caught.value.errors()[0])
    assert found.startswith(line)
    assert "\n" not in found

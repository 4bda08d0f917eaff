"""A service answers with documents of any form: each function that reads an API refuses them, or goes on."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import GpustackError
from support.attacks import attacked
from support.fleet_cloud import StandIn
from support.fuzz_readers import EVERYTHING, functions

FUNCTIONS = dict(functions())
ESCAPES = "\x1b]0;owned\x07\u202e\n\u2028"


def strange(document: Any, value: object) -> Any:
    """The document with each innermost value replaced."""
    if isinstance(document, dict):
        return {key: strange(inner, value) for key, inner in document.items()}
    return [strange(inner, value) for inner in document] if isinstance(document, list) else value


ANSWERS: dict[str, Any] = {
    "a list": [EVERYTHING] * 3,
    "nothing": None,
    "a text": "[" * 3000,
    "empty": {},
    "emptied": {key: type(value)() for key, value in EVERYTHING.items()},
    "numbers": strange(EVERYTHING, 10**400),
    "floats": strange(EVERYTHING, float("nan")),
    "escapes": strange(EVERYTHING, ESCAPES),
    "paths": strange(EVERYTHING, "../../servers/x"),
    "objects": strange(EVERYTHING, {"a": [1]}),
    "swapped": {key: [value] if isinstance(value, dict) else {"0": value} for key, value in EVERYTHING.items()},
}


def everywhere(answer: Any) -> None:
    asked = set()
    for name, function in FUNCTIONS.items():
        requests: list[str] = []

        def reply(path: str, name: str = name, requests: list[str] = requests) -> tuple[int, Any]:
            requests.append(path)
            asked.add(name)
            assert len(requests) < 1000, requests[:3]
            assert "/../" not in path, path
            return 200, answer

        cloud = StandIn(answers=dict.fromkeys(("compute", "placement", "identity", "image"), reply))
        try:
            result = function(cloud)
            if inspect.isgenerator(result):
                list(result)
        except GpustackError:
            continue
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")
    assert len(asked) > 30


def attack(name: str) -> Any:
    def attacked_by(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
        everywhere(ANSWERS[name])

    return attacked_by


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {name: attack(name) for name in ANSWERS},
    {"gpustack.cloud.session:well_formed": {"gpustack.cloud.session:well_formed": lambda _doing: nullcontext()}},
)

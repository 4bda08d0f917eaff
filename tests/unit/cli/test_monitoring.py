"""``gpustack monitoring path``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gpustack = Callable[..., Any]


def test_the_files_are_there(gpustack: Gpustack) -> None:
    paths = json.loads(gpustack("monitoring", "path", "-f", "json").out)
    assert {name: Path(path).is_file() for name, path in paths.items()} == {"alerts": True, "dashboard": True}


@pytest.mark.parametrize("name", ["alerts", "dashboard"])
def test_a_name_prints_only_its_path(gpustack: Gpustack, name: str) -> None:
    (path,) = gpustack("monitoring", "path", name).out.splitlines()
    assert Path(path).is_file()


def test_an_unknown_name_is_refused(gpustack: Gpustack) -> None:
    ran = gpustack("monitoring", "path", "rules")
    assert (ran.code, ran.out) == (2, "")
    assert "alerts, dashboard" in ran.err.replace("'", "")  # older Pythons quote them

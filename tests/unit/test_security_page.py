"""The table of authority names doors and tests that exist, and the page is generated from it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TABLE: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "gpustack/data/authority.toml").read_text(encoding="utf-8"))
MOST_WORDS = 900


def exists(door: str) -> bool:
    """Whether a door is there: a file of the playbooks, a module, or a function or class of a module."""
    if "/" in door:
        return (ROOT / door).is_file()
    module, _, name = door.partition(":")
    return not name or hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_row_has_doors_and_tests(name: str) -> None:
    row = TABLE[name]
    assert row.keys() == {"title", "may", "never", "doors", "tests"}
    assert row["doors"]
    assert row["tests"]
    assert [door for door in row["doors"] if not exists(door)] == []
    assert [path for path in row["tests"] if not (ROOT / path).is_file()] == []


def test_the_page_is_generated_and_short() -> None:
    tool = ROOT / "tools/authority"
    assert subprocess.run([sys.executable, tool, "--check"], check=False).returncode == 0, f"run {tool}"
    assert len((ROOT / "docs/explanation/security.md").read_text(encoding="utf-8").split()) <= MOST_WORDS

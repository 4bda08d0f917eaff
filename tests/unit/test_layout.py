"""The floors of CONTRIBUTING's table: a package imports from lower ones only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "gpustack"
# Python's own names for a package's face and for its program.
FACES = ("__init__", "__main__", "osc_plugin")


def floors() -> dict[str, int]:
    rows = re.findall(r"^\| (\d) \| (`.+?) \|", (TOP / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}


def rooms() -> set[str]:
    found = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return found - set(FACES)


def imported(path: Path) -> Iterator[str]:
    """What a file imports of gpustack: the first name below it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [f"{node.module}.{name.name}" for name in node.names]
        else:
            continue
        yield from (module.split(".")[1] for module in modules if module.startswith("gpustack."))


def test_every_package_has_a_floor() -> None:
    assert rooms() <= set(floors())


@pytest.mark.parametrize("room", sorted(rooms()))
def test_imports_point_down(room: str) -> None:
    by_name = floors()
    paths = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").exists() else (PACKAGE / room).rglob("*.py")
    for path in paths:
        # A version number (gpustack.__version__) stands on no floor.
        upwards = {
            name for name in imported(path) if name in by_name and name != room and by_name[name] >= by_name[room]
        }
        assert not upwards, f"{path.relative_to(TOP)} imports {', '.join(sorted(upwards))}"

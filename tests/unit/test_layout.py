"""The floors in the table of docs/explanation/architecture.md: a package imports from lower ones only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "explanation" / "architecture.md"
PACKAGES = (TOP / "gpustack", TOP / "demo" / "gpustack_demo")
# Python's own names for a package's face and for its program.
FACES = ("__init__", "__main__", "osc_plugin")


def floors() -> dict[str, int]:
    rows = re.findall(r"^\| (\d) \| (`.+?) \|", PAGE.read_text(), re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}


def rooms() -> dict[str, Path]:
    """The modules and packages on the floors, each with its path."""
    paths = [path for package in PACKAGES for path in package.glob("*.py")]
    paths += [path.parent for package in PACKAGES for path in package.glob("*/__init__.py")]
    return {path.stem: path for path in paths if path.stem not in FACES}


def imported(path: Path) -> Iterator[str]:
    """What a file imports of gpustack and gpustack_demo: the first name below them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [f"{node.module}.{name.name}" for name in node.names]
        else:
            continue
        yield from (module.split(".")[1] for module in modules if module.startswith(("gpustack.", "gpustack_demo.")))


def test_the_page_lists_the_packages_with_their_floors() -> None:
    assert set(rooms()) == set(floors())


def test_the_rooms_and_modules_that_the_page_names_exist() -> None:
    """``host/decide``, ``spec/assignment.py``, …"""
    named = re.findall(r"`([\w/]+/\w+(?:\.py)?|\w+\.py)`", PAGE.read_text())
    assert len(named) > len(list((TOP / "gpustack").glob("*/*/__init__.py")))
    assert not [name for name in named if not any((root / name).exists() for root in (TOP, *PACKAGES))]


@pytest.mark.parametrize("room", sorted(rooms()))
def test_imports_point_down(room: str) -> None:
    by_name = floors()
    place = rooms()[room]
    for path in place.rglob("*.py") if place.is_dir() else [place]:
        # A version number (gpustack.__version__) stands on no floor.
        upwards = {
            name for name in imported(path) if name in by_name and name != room and by_name[name] >= by_name[room]
        }
        assert not upwards, f"{path.relative_to(TOP)} imports {', '.join(sorted(upwards))}"


def test_the_product_imports_nothing_of_the_demo() -> None:
    imports = re.compile(r"^\s*(?:from|import) gpustack_demo\b", re.MULTILINE)
    assert not [path for path in (TOP / "gpustack").rglob("*.py") if imports.search(path.read_text())]

"""The floors of CONTRIBUTING's table: a package imports from lower ones only. Tests mirror the modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "explanation" / "architecture.md"
PACKAGES = (TOP / "gpustack", TOP / "demo" / "gpustack_demo")
# The face of the package: names of Python, the public errors, and what playbooks of 0.1.0 import.
FACES = ("__init__", "__main__", "osc_plugin", "errors", "task_results")


def floors() -> dict[str, int]:
    rows = re.findall(r"^\| (\d+) \| (`.+?) \|", PAGE.read_text(), re.MULTILINE)
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
    """``prepare/host/decide``, ``spec/assignment.py``, …"""
    output = re.findall(r"`([\w/]+/\w+(?:\.py)?|\w+\.py)`", PAGE.read_text())
    assert len(output) > len(list((TOP / "gpustack").glob("*/*/__init__.py")))
    assert not [name for name in output if not any((root / name).exists() for root in (TOP, *PACKAGES))]


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


def test_stand_ins_know_nothing_of_what_they_judge() -> None:
    """A wrong plan, or a wrong reading of a file, must lead to a wrong boot."""
    judged = re.compile(r"^\s*(?:from|import) gpustack\.(?:prepare\.host|linux|hosts\.readiness)\b", re.MULTILINE)
    examples = (TOP / "demo/gpustack_demo/examples").rglob("*.py")
    assert not [path for path in examples if judged.search(path.read_text(encoding="utf-8"))]
    readers = re.compile(r"^\s*(?:from|import) gpustack\.linux\b", re.MULTILINE)
    assert not readers.search((TOP / "tests/support/boot_simulation.py").read_text(encoding="utf-8"))


UNIT = TOP / "tests" / "unit"
# Tests of behaviour that several modules share, in directories of modules.
SCENARIOS = {
    "repair/test_classes",
    "repair/test_cloud",
    "novadb/test_heads",
    "repair/test_held",
    "repair/test_hostile_journal",
    "repair/test_hostile_mappings",
    "repair/test_killed",
    "repair/test_odd_rows",
    "repair/test_playbook",
    "repair/test_reservation",
    "repair/test_runbook",
    "repair/test_safety_flags",
    "repair/test_saved_plan",
    "cli/test_ssh_options",
    "cli/test_terminal",
    "hosts/facts/collector/test_serial",
    "hosts/facts/test_bounds",
    "offer/flavor/test_plugin",
    "offer/flavor/test_signing_in",
    "offer/guest/test_cloud_init",
    "offer/guest/kubernetes/test_howto",
    "prepare/host/test_cases",
    "prepare/host/test_prior_art",
    "prepare/host/test_properties",
    "prepare/host/test_real_tools",
    "prepare/drain/test_cases",
    "prepare/drain/test_choices",
    "configure/test_kubernetes",
    "connect/ssh/test_guest",
    "test_complete_path",
    "test_demo_picture",
    "test_distributions",
    "test_lab_signals",
    "test_layout",
    "test_manuals",
    "test_monitoring",
    "test_security_page",
    "test_upgrade_page",
    "test_words",
    "test_setup",
}
# Directories without a package of the same name: all of their tests are scenarios.
SCENARIO_ROOMS = ("fuzz", "playbooks")


def mirrors_a_module(test: Path) -> bool:
    """Whether a test is named after a module or package at the same place in the tree; rules begin with their class."""
    place, name = test.parent.relative_to(UNIT), test.stem.removeprefix("test_")
    names = (f"{name}.py", f"{name}/__init__.py", f"rules/?_{name}.py", f"rules/_{name}.py")
    return any(any((package / place).glob(pattern)) for package in PACKAGES for pattern in names)


def test_tests_are_named_after_modules() -> None:
    tests = {str(path.relative_to(UNIT).with_suffix("")): path for path in UNIT.rglob("test_*.py")}
    strange = {name for name, path in tests.items() if not mirrors_a_module(path)}
    assert {name for name in strange if not name.startswith(SCENARIO_ROOMS)} <= SCENARIOS


def test_tests_import_nothing_of_other_tests() -> None:
    imports = re.compile(r"^\s*(?:from|import) (?:unit\.|nova\.cleanup|\.)", re.MULTILINE)
    tests = [path for name in ("unit", "nova", "support") for path in (TOP / "tests" / name).rglob("*.py")]
    # They run the tests of other modules again, on database servers.
    rerun = {TOP / "tests/nova/cleanup" / name for name in ("test_on_servers.py", "test_servers.py")}
    assert {path for path in tests if imports.search(path.read_text(encoding="utf-8"))} <= rerun


DATABASES = ("sqlalchemy", "sqlite3", "pymysql", "MySQLdb", "psycopg", "psycopg2")
# novadb reads; these modules of clean-up guard, write and undo.
DATABASE_WRITERS = {f"repair/{name}.py" for name in ("apply", "guards", "repair", "undo")}


def database_uses(package: Path) -> Iterator[str]:
    """Where modules outside ``novadb/`` and :data:`DATABASE_WRITERS` load a library of databases, as ``path:line``."""
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place.startswith("novadb/") or place in DATABASE_WRITERS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call):  # importlib.import_module("sqlalchemy")
                names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            else:
                continue
            yield from (f"{place}:{node.lineno}" for name in names if name.partition(".")[0] in DATABASES)


def test_only_the_reader_and_clean_ups_writers_use_databases() -> None:
    assert list(database_uses(TOP / "gpustack")) == []
    assert all((TOP / "gpustack" / name).is_file() for name in DATABASE_WRITERS)


@pytest.mark.parametrize(
    "line",
    [
        "import sqlalchemy as sa",
        "from sqlalchemy.orm import Session",
        "if TYPE_CHECKING:\n    import sqlalchemy",
        "import sqlite3",
        'importlib.import_module("sqlalchemy.orm")',
    ],
)
def test_a_database_outside_the_reader_is_named(line: str, tmp_path: Path) -> None:
    for place in ("fleet/rows.py", "novadb/rows.py", "repair/undo.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f'"""Rows."""\n{line}\n')
    assert list(database_uses(tmp_path)) == [f"fleet/rows.py:{2 + line.count(chr(10))}"]

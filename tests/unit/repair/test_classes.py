"""``classes.yaml`` tells the truth: every class has its tests, they are there, and run where it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpustack.repair import rules
from gpustack.repair.classes import CLASSES, CleanupClass, label, lookup

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TESTED = yaml.safe_load((HERE / "classes.yaml").read_text(encoding="utf-8"))


def collected(*paths: str, **more: str) -> dict[str, set[str]]:
    """For each test of these files (``MODULE::TEST``) what it is run with."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSTACK", "PYTEST"))}
    variables = {**inherited, **more}
    process = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    worlds: dict[str, set[str]] = {}
    pattern = r"^tests/nova/cleanup/(\w+)\.py::(\w+)\[(?:.+-)?((?:20\d\d\.\d|yoga)[\w-]*)\]$"
    for module, test, world in re.findall(pattern, process.stdout, re.MULTILINE):
        worlds.setdefault(f"{module}::{test}", set()).add(world)
    return worlds


@pytest.fixture(scope="module")
def worlds() -> dict[str, set[str]]:
    """What each test beside a real Nova is run with by `make test-all`."""
    return collected("tests/nova/cleanup", GPUSTACK_NOVA_RELEASES="2025.2 2026.2")


@pytest.fixture(scope="module")
def chosen() -> dict[str, set[str]]:
    """What each test beside a real Nova is run with by `make test`."""
    return collected("tests/nova/cleanup")


def of(test: str) -> set[str]:
    """The worlds that ``classes.yaml`` tells of a test."""
    return set(TESTED["worlds"].get(test) or TESTED["worlds"][test.partition("::")[0]])


# Told as A, B and C; compared with Placement, and with the hosts, by tests of their own.
WITHOUT_A_CASE = {"M", "Q", "T"}


def letters(*patterns: str, after: str = "") -> set[str]:
    """The classes that files are named for."""
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return {path.stem.removeprefix(after)[0].upper() for path in paths if path.stem.startswith(after)}


@pytest.mark.parametrize(
    ("part", "classes"),
    [
        ("a module in gpustack/repair/rules", letters("gpustack/repair/rules/[a-z]_*.py")),
        ("an entry in tests/unit/repair/classes.yaml", set(TESTED["classes"])),
        ("a file in tests/unit/repair/cases", letters("tests/unit/repair/cases/[a-z]-*.yaml") | WITHOUT_A_CASE),
        ("a page in docs/runbook", letters("docs/runbook/class-*.md", after="class-")),
    ],
)
def test_each_class_has_each_part(part: str, classes: set[str]) -> None:
    assert classes == set(CLASSES), f"{part} is missing, or superfluous"


def test_no_two_classes_have_one_letter() -> None:
    listed = [rule.CLASS for rule in (*rules.RULES, *rules.WITNESSED)]
    assert len(listed) == len(set(listed))


def test_each_module_is_of_its_letter() -> None:
    for rule in (*rules.RULES, *rules.WITNESSED):
        assert rule.__name__.rpartition(".")[2].startswith(f"{rule.CLASS.lower()}_")  # type: ignore[attr-defined]


@pytest.mark.parametrize("klass", CLASSES.values(), ids=str)
def test_cases_and_pages_have_the_name_of_the_class(klass: CleanupClass) -> None:
    if klass.letter not in WITHOUT_A_CASE:
        assert (HERE / "cases" / f"{klass.letter.lower()}-{klass.name}.yaml").is_file()
    page = ROOT / "docs" / "runbook" / f"class-{klass.letter.lower()}.md"
    assert page.read_text(encoding="utf-8").startswith(f"# Class {klass}: ")


def test_letters_and_names_both_find_a_class() -> None:
    assert {lookup(klass.name) for klass in CLASSES.values()} == set(CLASSES.values())
    assert lookup("b") == lookup("B") == lookup("Migration-Pinned") == CLASSES["B"]
    assert lookup("pinned") is None


def test_a_letter_of_another_version_stays_a_letter() -> None:
    assert (label("B"), label("Z"), label("")) == ("B (migration-pinned)", "Z", "")


@pytest.mark.parametrize("klass", sorted(TESTED["classes"]))
def test_its_tests_are_there_and_its_leak_is_made_on_both_releases(
    klass: str, worlds: dict[str, set[str]], chosen: dict[str, set[str]]
) -> None:
    entry = TESTED["classes"][klass]
    assert entry["leak"]
    assert entry["alike"]
    met = set()
    for test in (*entry["leak"], *entry["alike"]):
        if test.startswith("cases/"):
            assert (HERE / test).is_file(), test
            continue
        assert of(test) == worlds[test], test
        met |= chosen[test] if test in entry["leak"] else set()
    assert {world.partition("-")[0] for world in met} == {"2025.2", "2026.2"}


def test_databases_and_placement_are_all_met() -> None:
    """Nova itself on each database, and with PCI in Placement and without."""
    combinations = {tuple(world.split("-")[1:]) for worlds in TESTED["worlds"].values() for world in worlds}
    assert combinations >= {(), ("placement",), ("mariadb", "placement"), ("postgresql",)}


def test_the_long_form_meets_every_class_on_both_servers_with_both_releases() -> None:
    """``make cleanup-servers``: the modules that it names, and the turns that it lets the releases take."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (addprefix,) = re.findall(r"^CLEANUP_ON_SERVERS := \$\(addprefix (\S+),((?:.|\\\n)+?)\)$", makefile, re.MULTILINE)
    modules = [f"{addprefix[0]}{name}" for name in addprefix[1].replace("\\", "").split()]
    assert modules == [f"tests/nova/cleanup/test_{name}.py" for name in TESTED["on_servers"]]
    turns = re.search(r"^\t@for databases in (.+); do", makefile, re.MULTILINE)
    assert turns is not None
    met: dict[str, set[tuple[str, str]]] = {}
    for turn in re.findall(r'"(.+?)"', turns[1]):
        for test, worlds in collected(
            *modules, GPUSTACK_CLEANUP_DATABASES=turn, GPUSTACK_NOVA_RELEASES="2025.2 2026.2"
        ).items():
            met.setdefault(test, set()).update(
                (fields[0], fields[1]) for world in worlds if (fields := world.split("-"))
            )
    required = {(release, server) for release in ("2025.2", "2026.2") for server in ("mariadb", "postgresql")}
    for klass, entry in TESTED["classes"].items():
        of_class = set().union(*(met.get(test, set()) for test in entry["leak"]))
        assert of_class == required, klass

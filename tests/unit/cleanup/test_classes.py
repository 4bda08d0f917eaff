"""``classes.yaml`` tells the truth: every class has its tests, they are there, and run where it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpustack.cleanup import allocated, rules
from gpustack.cleanup import domain_drift as drift

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TESTED = yaml.safe_load((HERE / "classes.yaml").read_text(encoding="utf-8"))


def collected(*paths: str, **more: str) -> dict[str, set[str]]:
    """For each test of these files (``MODULE::TEST``) what it is run with."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSTACK", "PYTEST"))}
    variables = {**kept, **more}
    told = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    found: dict[str, set[str]] = {}
    for module, test, world in re.findall(r"^tests/nova/cleanup/(\w+)\.py::(\w+)\[(.+)\]$", told.stdout, re.MULTILINE):
        found.setdefault(f"{module}::{test}", set()).add(world)
    return found


@pytest.fixture(scope="module")
def worlds() -> dict[str, set[str]]:
    """What each test beside a real Nova is run with by `make test`."""
    return collected("tests/nova/cleanup")


def of(test: str) -> set[str]:
    """The worlds that ``classes.yaml`` tells of a test."""
    return set(TESTED["worlds"].get(test) or TESTED["worlds"][test.partition("::")[0]])


def test_every_class_is_there() -> None:
    assert TESTED["classes"].keys() == {rule.CLASS for rule in rules.RULES} | {allocated.CLASS, drift.CLASS}


@pytest.mark.parametrize("klass", sorted(TESTED["classes"]))
def test_its_tests_are_there_and_run_on_both_releases(klass: str, worlds: dict[str, set[str]]) -> None:
    entry = TESTED["classes"][klass]
    assert entry["leak"]
    assert entry["alike"]
    met = set()
    for test in (*entry["leak"], *entry["alike"]):
        if test.startswith("cases/"):
            assert (HERE / test).is_file(), test
            continue
        assert of(test) == worlds[test], test
        met |= worlds[test] if test in entry["leak"] else set()
    assert {world.partition("-")[0] for world in met} == {"2025.2", "2026.2"}


def test_databases_and_placement_are_all_met() -> None:
    """Nova itself on each database, and with PCI in Placement and without."""
    found = {tuple(world.split("-")[1:]) for worlds in TESTED["worlds"].values() for world in worlds}
    assert found >= {(), ("placement",), ("mariadb", "placement"), ("postgresql",)}


def test_the_long_form_meets_every_class_on_both_servers_with_both_releases() -> None:
    """``make cleanup-servers``: the modules that it names, and the turns that it lets the releases take."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (named,) = re.findall(r"^CLEANUP_ON_SERVERS := \$\(addprefix (\S+),((?:.|\\\n)+?)\)$", makefile, re.MULTILINE)
    modules = [f"{named[0]}{name}" for name in named[1].replace("\\", "").split()]
    assert modules == [f"tests/nova/cleanup/test_{name}.py" for name in TESTED["on_servers"]]
    turns = re.search(r"^\t@for databases in (.+); do", makefile, re.MULTILINE)
    assert turns is not None
    met: dict[str, set[tuple[str, str]]] = {}
    for turn in re.findall(r'"(.+?)"', turns[1]):
        for test, worlds in collected(*modules, GPUSTACK_CLEANUP_DATABASES=turn).items():
            met.setdefault(test, set()).update((words[0], words[1]) for world in worlds if (words := world.split("-")))
    both = {(release, server) for release in ("2025.2", "2026.2") for server in ("mariadb", "postgresql")}
    for klass, entry in TESTED["classes"].items():
        of_class = set().union(*(met.get(test, set()) for test in entry["leak"]))
        assert of_class == both, klass

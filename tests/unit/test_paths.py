"""Each path and dotted name that a file mentions outside imports exists, so that a move of modules misses none."""

from __future__ import annotations

import functools
import importlib
import json
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from support import house, named_paths

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
FILES = (
    subprocess.run(
        ["git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    .stdout.strip("\0")
    .split("\0")
)
PRESENT = {*FILES, *(str(parent) for name in FILES for parent in PurePosixPath(name).parents)}
# Where modules are named without the first directories: docs, tests' own READMEs.
ROOTS = ("", "gpustack/", "demo/gpustack_demo/", "tests/unit/", "tests/nova/cleanup/", "tests/lab/")
# Packages of others whose modules the texts cite.
CITED = ("nova/", "ansible/", "oslo_config/", "openstack/", "cloudinit/", "keystone/", "novaclient/", "placement/")
# Paths of a wheel, recipes for a new file, the label of Kubernetes nodes; make expands test_ itself (see below).
ELSEWHERE = re.compile(r"tools/modprobe\.c|gpustack/(?:share|gputype)\b|x[_-]name|RELEASE.txt")


@functools.cache
def known() -> dict[str, set[str]]:
    """The names of each module."""
    return named_paths.names(house.sources(TOP))


def texts(*patterns: str) -> dict[str, str]:
    """The text of tracked files, by path."""
    names = sorted(path.relative_to(TOP).as_posix() for pattern in patterns for path in TOP.glob(pattern))
    found = {
        name: (TOP / name).read_text(encoding="utf-8") for name in names if name in FILES and (TOP / name).is_file()
    }
    assert found, patterns
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        "pyproject.toml",
        "Makefile",
        "noxfile.py",
        "*.md",
        ".ci/*",
        "bench/*.py",
        "tools/*",
        "docs/_ext/*.py",
        "docs/**/*.md",
    ],
)
def test_paths_in_texts_exist(pattern: str) -> None:
    missing = [
        f"{name}:{line}: {path}"
        for name, text in texts(pattern).items()
        for line, path in named_paths.missing_paths(text, PRESENT)
        if not ELSEWHERE.search(path) and not path.endswith("test_") and name != "CHANGELOG.md"
    ]
    assert missing == []


def test_paths_in_comments_of_data_exist() -> None:
    for name, text in texts("gpustack/data/**/*.toml").items():
        assert [(name, *found) for found in named_paths.missing_paths(text, PRESENT, only_comments=True)] == []


@pytest.mark.parametrize(
    "pattern", ["*.md", "docs/**/*.md", "gpustack/**/*.py", "gpustack/data/**/*.toml", "tests/**/*.md"]
)
def test_modules_in_texts_exist(pattern: str) -> None:
    missing = [
        f"{name}:{line}: {module}"
        for name, text in texts(pattern).items()
        for line, module in named_paths.missing_modules(text, ROOTS, PRESENT)
        if not module.startswith(CITED) and not ELSEWHERE.search(module) and name != "CHANGELOG.md"
    ]
    assert missing == []


@pytest.mark.parametrize(
    "pattern",
    ["gpustack/**/*.py", "demo/**/*.py", "docs/**/*.md", "playbooks/**/*.yml", "playbooks/**/*.py", "bench/*.py"],
)
def test_dotted_names_exist(pattern: str) -> None:
    found = {name: list(named_paths.missing_names(text, known())) for name, text in texts(pattern).items()}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("pattern", ["bench/*.py", "docs/_ext/*.py", "docs/conf.py", "tools/*"])
def test_paths_that_scripts_join_exist(pattern: str) -> None:
    scripts = {
        name: text for name, text in texts(pattern).items() if name.endswith(".py") or "env python3" in text[:30]
    }
    missing = [
        f"{name}:{line}: {path}"
        for name, text in scripts.items()
        for line, path in named_paths.joined(text, PurePosixPath(name))
        if path not in PRESENT and not path.startswith((".", "docs/reference/generated"))
    ]
    assert missing == []


def test_lists_of_the_makefile_exist() -> None:
    show = "show: ; @echo $(SLOW) $(PARTS) $(CLEANUP_ON_SERVERS) $(foreach name,$(LAB),$(LAB_$(name)))"
    command = ["make", "--silent", "--no-print-directory", "-C", TOP, f"--eval={show}", "show"]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    paths = [word for word in words if word.startswith("tests/")]
    assert len(paths) > 20
    for path in paths:
        file, _, test = path.partition("::")
        assert file in PRESENT, path
        assert not test or f"def {test.partition('[')[0]}(" in (TOP / file).read_text(encoding="utf-8"), path


def test_lists_of_nox_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TOP)
    paths = named_paths.of_nox((TOP / "noxfile.py").read_text(encoding="utf-8"))
    assert len(paths) > 5
    assert paths - PRESENT == set()


def test_costs_are_of_tests_that_exist() -> None:
    costs = json.loads((TOP / "tests/costs.json").read_text(encoding="utf-8"))
    assert {name for name in _paths(costs) if f"tests/{name}" not in PRESENT} == set()


def _paths(costs: Any) -> set[str]:
    if isinstance(costs, dict):
        return {key.partition("::")[0] for key in costs if "/" in key} | {p for v in costs.values() for p in _paths(v)}
    return set()


def test_links_of_the_playbooks_exist() -> None:
    assert named_paths.dangling(TOP, "playbooks/module_utils") == []


def test_files_of_linters_exist() -> None:
    patterns = [pattern.removesuffix("/**") for pattern in PROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]]
    assert [pattern for pattern in patterns if not list(TOP.glob(pattern))] == []
    assert [path for path in PROJECT["tool"]["mypy"]["files"] if path not in PRESENT] == []
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = [
        *wheel["packages"],
        *wheel["force-include"],
        *wheel["shared-data"],
        PROJECT["tool"]["hatch"]["version"]["path"],
    ]
    assert [path for path in named if path not in PRESENT] == []


def test_entry_points_exist() -> None:
    project = PROJECT["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    for name, target in ((name, target) for group in groups for name, target in group.items()):
        module, _, attribute = target.partition(":")
        loaded = importlib.import_module(module)
        assert not attribute or hasattr(loaded, attribute), f"{name} = {target}"


def test_moved_paths_are_found() -> None:
    """A sample for each rule."""
    text = "see gpustack/old/x.py and tests/unit/*/test_x.py,\n# tests/unit/base.\nhttps://x.example/gpustack/old"
    present = {"tests/unit/base", "tests/unit/base/test_x.py", "gpustack/host/plan.py"}
    assert list(named_paths.missing_paths(text, present)) == [(1, "gpustack/old/x.py")]
    assert list(named_paths.missing_paths(text, present, only_comments=True)) == []
    assert list(named_paths.missing_modules("`host/plan.py`, `old/plan.py`", ("", "gpustack/"), present)) == [
        (1, "old/plan.py")
    ]
    known = {"gpustack": set(), "gpustack.base.text": {"listed"}}
    dotted = "gpustack.yaml, gpustack.base.text.listed,\n:func:`gpustack.base.text.gone`, gpustack.old.x"
    assert list(named_paths.missing_names(dotted, known)) == [(2, "gpustack.base.text.gone"), (2, "gpustack.old.x")]
    script = 'TOP = Path(__file__).parents[1]\nPath(TOP / "docs" / "gone.md")\nTOP / name'
    assert list(named_paths.joined(script, PurePosixPath("tools/x"))) == [(2, "docs/gone.md")]


def test_a_link_that_points_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/gone").symlink_to("../old")
    (tmp_path / "links/good").symlink_to("../links")
    assert named_paths.dangling(tmp_path, "links") == ["links/gone → ../old"]

"""The distributions as a release builds them: what a wheel holds, and that it runs in a bare environment."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpustack
import gpustack_demo

TOP = Path(__file__).parents[2]
MAIN, DEMO, WEIGHER = TOP, TOP / "demo", TOP / "weigher"


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """The output of a program that sees nothing of this checkout."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    process = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert process.returncode == code, process.stdout + process.stderr
    return process.stdout + process.stderr


def outcome(*command: str | Path, cwd: Path) -> int:
    """The exit code of a command that ends with a message, not with a traceback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "OS_"))}
    variables = {**kept, "HOME": str(cwd)}
    process = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    printed = process.stdout + process.stderr
    assert not any(word in printed for word in ("Traceback", "fault of gpustack", "ModuleNotFound")), (command, printed)
    return process.returncode


def build(project: Path, kind: str, out: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, cwd=project)
    (archive,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """The wheel of each distribution, built from its source distribution as pip does."""
    by_project = {}
    for project in (MAIN, DEMO, WEIGHER):
        place = tmp_path_factory.mktemp("build")
        run("tar", "-xf", build(project, "sdist", place), cwd=place)
        (source,) = (path for path in place.iterdir() if path.is_dir())
        by_project[project] = build(source, "wheel", place / "wheel")
    return by_project


def test_builds_of_two_clones_with_different_umasks_are_equal(tmp_path: Path) -> None:
    built = []
    for umask in (0o022, 0o077):
        clone, out = tmp_path / f"clone{umask}", tmp_path / f"out{umask}"
        command = ["git", "clone", "--quiet", "--depth=1", f"file://{TOP}", str(clone)]
        subprocess.run(command, check=True, umask=umask)
        for project in (MAIN, DEMO, WEIGHER):
            command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
            subprocess.run(command, cwd=clone / project.relative_to(TOP), check=True, umask=umask, capture_output=True)
        built.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert len(built[0]) == 6
    assert built[0] == built[1]


def test_the_metadata_have_addresses_of_the_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, pages = "https://code.example/nova-gpustack", "https://docs.example/en"
    monkeypatch.setenv("GPUSTACK_REPOSITORY", repository)
    monkeypatch.setenv("GPUSTACK_DOCUMENTATION", pages)
    with zipfile.ZipFile(build(MAIN, "wheel", tmp_path)) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(record).decode()
    assert f"Project-URL: Documentation, {pages}\n" in text
    assert f"Project-URL: Source, {repository}\n" in text
    links = re.findall(r"\]\(([^)]+)\)", text.partition("\n\n")[2])
    assert len(links) > 20
    tag = f"{repository}/blob/v{gpustack.__version__}/"
    assert [link for link in links if not link.startswith(tag)] == []
    paths = {link.removeprefix(tag).partition("#")[0] for link in links}
    assert [path for path in paths if not (TOP / path).exists()] == []


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def committed(directory: Path) -> Iterator[Path]:
    """The files of a directory that are in git; a link to a directory stands for the files there."""
    command = ("git", "-C", directory, "ls-files", "-z")
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    for path in (directory / name for name in names if name):
        if path.is_dir():
            yield from (path / below.relative_to(path.resolve()) for below in committed(path.resolve()))
        else:
            yield path


def packaged(directory: Path, name: str) -> set[str]:
    return {f"{name}/{path.relative_to(directory)}" for path in committed(directory)}


WHEEL = tomllib.loads((MAIN / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
COLLECTION = {
    path: source for source, path in WHEEL["force-include"].items() if path.startswith("ansible_collections/")
}


def test_the_wheel_holds_the_package_and_what_it_writes_to_hosts(wheels: dict[Path, Path]) -> None:
    expected = packaged(MAIN / "gpustack", "gpustack")
    for name in ("templates", "docs/runbook"):
        expected |= packaged(MAIN / name, f"gpustack/share/{name}")
    for path, source in COLLECTION.items():
        expected |= packaged(MAIN / source, path) if (MAIN / source).is_dir() else {path}
    expected |= packaged(MAIN / "share", f"nova_gpustack-{gpustack.__version__}.data/data/share")
    shipped = {name for name in contents(wheels[MAIN]) if ".dist-info/" not in name}
    assert shipped == expected


def test_every_part_of_the_playbooks_is_in_the_collection() -> None:
    sources = {Path(source) for source in COLLECTION.values()}
    assert {path.relative_to(MAIN) for path in (MAIN / "playbooks").iterdir()} <= sources


def test_the_wheel_holds_nothing_of_the_demo(wheels: dict[Path, Path]) -> None:
    strange = ("embedded", "examples", "gpustack_demo", "tests/")
    assert not [name for name in contents(wheels[MAIN]) if any(fragment in name for fragment in strange)]
    shipped = {name for name in contents(wheels[DEMO]) if ".dist-info/" not in name}
    assert shipped == packaged(DEMO / "gpustack_demo", "gpustack_demo")


def test_the_weigher_is_one_module_that_installs_nothing_else(wheels: dict[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[WEIGHER]) as archive:
        modules = [name for name in archive.namelist() if ".dist-info/" not in name]
        (record,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(record).decode().splitlines()
    assert modules == ["gpustack_weigher.py"]
    assert f"Version: {gpustack.__version__}" in lines
    assert not [line for line in lines if line.startswith("Requires-Dist")]


def metadata(project: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def test_both_distributions_have_one_version() -> None:
    assert gpustack_demo.__version__ == gpustack.__version__
    extra = metadata(MAIN)["optional-dependencies"]["demo"]
    assert extra == [f"nova-gpustack-demo=={gpustack.__version__}"]
    assert metadata(DEMO)["dependencies"] == [f"nova-gpustack=={gpustack.__version__}"]


@pytest.fixture(scope="module")
def bare(wheels: dict[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes an environment that has some of the wheels, and of this one only the dependencies.

    Site directories that a .pth file adds are not searched for .pth files, so the checkout is not importable there.
    """

    def make(*projects: Path) -> Path:
        place = tmp_path_factory.mktemp("bare")
        venv.create(place, symlinks=True)
        python = place / "bin/python"
        purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip()
        (Path(purelib) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet")
        run(*pip, *(wheels[project] for project in projects), "--ignore-installed", cwd=place)
        return place

    return make


def test_an_operators_installation_runs_without_the_demo(bare: Callable[..., Path]) -> None:
    place = bare(MAIN)
    program = place / "bin/gpustack"
    assert run(program, "--version", cwd=place) == f"gpustack {gpustack.__version__}\n"
    playbooks = run(program, "playbook", "path", "-f", "value", "-c", "playbooks", cwd=place).strip()
    assert Path(playbooks).is_relative_to(place)
    assert (Path(playbooks) / "prepare.yml").is_file()
    assert Path(playbooks).parents[1].name == "nova_gpustack"
    message = run(program, "example", "create", "hosts", cwd=place, code=1)
    assert "pip install 'nova-gpustack[demo]'" in message
    assert not (place / "hosts").exists()


def test_the_extra_adds_the_example_hosts(bare: Callable[..., Path]) -> None:
    place = bare(MAIN, DEMO)
    program = place / "bin/gpustack"
    run(program, "example", "create", "hosts", cwd=place)
    table = run(program, "scan", "--root", "gpu01", "-f", "value", "-c", "Address", cwd=place / "hosts")
    assert table.splitlines()[:2] == ["0000:84:00.0", "0000:88:00.0"]


SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
flavors: {g1: {gpus: {k4200: 1}, vcpus: 8, ram: 32GiB, disk: 40GiB}}
"""
JOBS = {
    ("topology", "--root", "gpu01"): 0,
    ("spec", "check", "gpustack.yaml"): 0,
    ("host", "plan", "gpustack.yaml", "--root", "gpu01"): 0,
    ("playbook", "path", "prepare"): 0,
    ("nova", "render", "gpustack.yaml", "--snapshot", "hosts.json"): 0,
    ("nova", "lint", "nova.conf"): 0,
    ("cleanup", "plan", "--config-file", "nova.conf"): 0,
    ("guest", "requirements", "gpustack.yaml"): 0,
    ("explain", "GPU001"): 0,
    ("flavor", "plan", "gpustack.yaml"): 21,
    ("gpu", "list"): 21,
    ("capacity", "gpustack.yaml"): 21,
}
"""A command of each job with its exit code; those that need a cloud find none."""


def test_a_command_of_each_job_runs_from_the_wheel(bare: Callable[..., Path]) -> None:
    """A wheel that lacks a package or a data file ends with a traceback, or as a fault of gpustack."""
    place = bare(MAIN, DEMO)
    program, cell = place / "bin/gpustack", "tests/released/0.1.0"
    run(program, "example", "create", "hosts", cwd=place)
    hosts = place / "hosts"
    (hosts / "gpustack.yaml").write_text(SPEC)
    run(program, "scan", "--root", "gpu01", "--save", "hosts.json", cwd=hosts)
    for name in ("api", "cell"):
        with contextlib.closing(sqlite3.connect(hosts / f"{name}.sqlite")) as connection:
            connection.executescript((TOP / cell / f"{name}.sql").read_text().replace("/place", str(hosts)))
    (hosts / "nova.conf").write_text(f"[api_database]\nconnection = sqlite:///{hosts}/api.sqlite\n")
    assert {command: outcome(program, *command, cwd=hosts) for command in JOBS} == JOBS

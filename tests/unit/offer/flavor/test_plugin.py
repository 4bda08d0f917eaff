"""The plug-in of the openstack command: every call of openstack imports it, so it must cost nothing."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.registry import OF_CLOUD, OTHERS, by_job


def plugin_entries(commands: dict[str, str]) -> dict[str, str]:
    """The entry points of ``openstack``: those of the commands that need the cloud alone."""
    chosen = {name: value for name, value in commands.items() if name.partition("_")[0] in OF_CLOUD}
    return {f"gpu_{name.removeprefix('gpu_')}": value for name, value in chosen.items()}


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement brings in, beyond those of the interpreter."""
    after = "print(json.dumps(sorted(set(sys.modules) - before)))"
    program = f"import json, sys; before = set(sys.modules); {statement}; {after}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout))


def test_the_plugin_imports_nothing() -> None:
    assert loaded_by("import gpustack.osc_plugin") == {"gpustack", "gpustack.osc_plugin"}


def test_the_commands_bring_in_nothing_heavy() -> None:
    """Clients of the cloud come with the sign-in; the rules of clean-up, which a fleet has, need SQLAlchemy."""
    heavy = {"openstack", "keystoneauth1", "requests", "novaclient", "jinja2", "rich"}
    for module in ("change", "flavor", "history", "image"):
        assert not (heavy | {"sqlalchemy"}) & loaded_by(f"import gpustack.cli.{module}")
    for module in ("gpu", "reclaim"):
        assert not heavy & loaded_by(f"import gpustack.cli.{module}")


def test_both_programs_have_the_same_commands() -> None:
    def commands(group: str) -> dict[str, str]:
        return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=group)}

    expected = plugin_entries(commands("gpustack.cli"))
    assert commands("openstack.gpu.v1") == expected
    assert {"gpu_capacity", "gpu_disable", "gpu_enable", "gpu_watch", "gpu_report", "gpu_tenancy_show"} <= set(expected)


def test_the_project_declares_what_the_registry_lists() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]
    assert points["openstack.gpu.v1"] == plugin_entries(points["gpustack.cli"])
    assert OTHERS not in by_job(name.replace("_", " ") for name in points["gpustack.cli"])


def test_the_plugin_has_exactly_the_commands_that_need_the_cloud_alone() -> None:
    """A command with a connection belongs there, unless it reads Nova's databases or hosts; `history` reads records."""
    entries = importlib.metadata.entry_points(group="gpustack.cli")
    connected = {entry.name for entry in entries if issubclass(entry.load(), OpenStackCommand)} - {"health"}
    assert {"history"} | {name for name in connected if not name.startswith("cleanup_")} == {
        entry.name for entry in entries if plugin_entries({entry.name: entry.value})
    }

"""The plug-in of the openstack command: every call of openstack imports it, so it must cost nothing."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement brings in, beyond those of the interpreter."""
    after = "print(json.dumps(sorted(set(sys.modules) - before)))"
    program = f"import json, sys; before = set(sys.modules); {statement}; {after}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout))


def test_the_plugin_imports_nothing() -> None:
    assert loaded_by("import gpustack.osc_plugin") == {"gpustack", "gpustack.osc_plugin"}


def test_the_commands_bring_in_nothing_heavy() -> None:
    heavy = {"openstack", "keystoneauth1", "requests", "pydantic", "yaml", "novaclient", "sqlalchemy", "jinja2", "rich"}
    for module in ("change", "flavor", "flavor_manual", "flavor_spec", "gpu", "history", "image", "reclaim"):
        assert not heavy & loaded_by(f"import gpustack.cli.{module}")


def test_both_programs_have_the_same_commands() -> None:
    def commands(group: str) -> dict[str, str]:
        return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=group)}

    groups = ("cloud_", "flavor_", "image_", "quota_", "reclaim_")
    expected = {f"gpu_{name}": value for name, value in commands("gpustack.cli").items() if name.startswith(groups)}
    expected |= {name: commands("gpustack.cli")[name] for name in ("gpu_list", "gpu_show")}
    expected |= {f"gpu_{name}": commands("gpustack.cli")[name] for name in ("history", "undo")}
    assert commands("openstack.gpu.v1") == expected
    assert len(expected) == 23

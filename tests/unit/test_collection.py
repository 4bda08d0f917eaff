"""The collection nova_gpustack.passthrough, built, installed into an empty directory, and run from there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import gpustack
from gpustack.base.files import collection_dir
from gpustack_demo.examples.host import write_host
from support.playbook_place import EXAMPLES, SPEC, Place, environment

TOP = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PLUGINS = collection_dir() / "plugins"


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, TOP / "tools/collection", "--build", place], check=True, stdout=subprocess.DEVNULL)
    (built,) = place.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an offline installation."""
    place = tmp_path_factory.mktemp("collections")
    command = [BIN / "ansible-galaxy", "collection", "install", "--force", "--offline", tarball, "-p", place]
    subprocess.run(command, check=True, env=environment(place), stdout=subprocess.DEVNULL)
    return place


def files(directory: Path) -> Mapping[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_two_builds_are_equal(tarball: Path, tmp_path: Path) -> None:
    """The second has another umask and another time."""
    command = [sys.executable, TOP / "tools/collection", "--build", tmp_path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, umask=0o077)
    assert (tmp_path / tarball.name).read_bytes() == tarball.read_bytes()
    with tarfile.open(tarball) as tar:
        assert {(member.mtime, member.uid, member.uname) for member in tar} == {(0, 0, "")}


def test_the_tarball_has_the_content_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, TOP / "tools/collection", "--tree", tmp_path], check=True)
    from_tarball = dict(files(installed / "ansible_collections/nova_gpustack/passthrough"))
    manifest = json.loads(from_tarball.pop("MANIFEST.json"))
    assert from_tarball.pop("FILES.json")
    assert from_tarball == files(tmp_path)
    assert manifest["collection_info"]["version"] == "0.2.0-dev.0" or "dev" not in gpustack.__version__


def test_a_play_runs_from_the_tarball(installed: Path, tmp_path: Path) -> None:
    """By its full name, as Ansible and AWX run it; the environment has the same collection elsewhere too."""
    (tmp_path / "templates").mkdir()
    write_host(tmp_path / "templates/talk", EXAMPLES["talk"]("talk"))
    place = Place(path=tmp_path, templates=tmp_path / "templates")
    place.add("talk")
    place.spec(SPEC)
    place.inventory()
    variables = {**environment(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(installed)}
    command = [BIN / "ansible-playbook", "-v", "-i", "inventory.json", "nova_gpustack.passthrough.plan"]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "create /etc/modprobe.d/gpustack.conf" in ran.stdout


def test_a_collection_of_another_version_changes_no_host(installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "collections"
    for name, content in files(installed).items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    base = copy / "ansible_collections/nova_gpustack/passthrough/plugins/plugin_utils/gpustack_base.py"
    base.write_text(base.read_text(encoding="utf-8").replace(gpustack.__version__, "9.9.9"), encoding="utf-8")
    variables = {**environment(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(copy)}
    command = [BIN / "ansible-playbook", "-i", "localhost,", "-c", "local", "nova_gpustack.passthrough.plan"]
    command += ["-e", "gpustack_spec=gpustack.yaml", "-e", "ansible_become=false"]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    printed = " ".join((ran.stdout + ran.stderr).split())
    assert ran.returncode != 0
    assert f"the playbooks are of gpustack 9.9.9, but gpustack {gpustack.__version__} is installed" in printed
    assert "pip install nova-gpustack==9.9.9" in printed


def test_ansible_needs_the_same_version_for_both() -> None:
    runtime = yaml.safe_load((collection_dir() / "meta/runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = (text for text in project["dependencies"] if text.startswith("ansible-core"))
    assert SpecifierSet(runtime) == SpecifierSet(requirement.removeprefix("ansible-core"))


def constant(path: Path, name: str) -> Any:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(getattr(t, "id", "") == name for t in targets):
            assert node.value is not None
            return ast.literal_eval(node.value)
    return None


@pytest.mark.parametrize("path", sorted((PLUGINS / "action").glob("*.py")), ids=lambda path: path.stem)
def test_action_plugins_are_documented_with_their_arguments(path: Path) -> None:
    module = PLUGINS / "modules" / path.name
    document = yaml.safe_load(constant(module, "DOCUMENTATION"))
    assert document["module"] == path.stem
    assert f"nova_gpustack.passthrough.{path.stem}:" in constant(module, "EXAMPLES")
    arguments = constant(path, "arguments") if path.stem != "gpustack_options" else {}
    if arguments:
        documented = {
            name: {key: value for key, value in option.items() if key != "description"}
            for name, option in document["options"].items()
        }
        assert documented == arguments


def test_every_module_has_an_interpreter_line_and_documentation() -> None:
    for path in (PLUGINS / "modules").glob("*.py"):
        assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/python\n")
        assert constant(path, "DOCUMENTATION"), path
    assert os.access(TOP / "tools/collection", os.X_OK)

"""A host answers with facts that have the names of variables: it fails, and decides nothing for itself or others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.files import share_dir
from gpustack.connect.playbooks.inventory import interpreter
from gpustack_demo.examples.host import write_host
from support.lowest_ansible import environment_of, supported
from support.playbook_place import EXAMPLES, SPEC, Place, environment, tree

PLAYBOOKS = share_dir("playbooks")
ROLES = PLAYBOOKS / "roles"
MAGIC = ("inventory_hostname", "inventory_hostname_short", "group_names", "inventory_dir", "omit")


def variables() -> set[str]:
    """Every variable of gpustack in the playbooks: options, results of tasks, loop variables."""
    texts = [path.read_text(encoding="utf-8") for path in PLAYBOOKS.rglob("*.yml")]
    return {name for text in texts for name in re.findall(r"\bgpustack_[a-z_]+\b", text)}


def forged(honest: Path) -> dict[str, Any]:
    """Facts that pose as another host, whose root is ``honest``, and choose each option."""
    values = {name: str(honest) if name.endswith("root") else "talk" for name in variables()}
    return {
        **values,
        **dict.fromkeys(MAGIC, "talk"),
        "gpustack_reboot": True,
        "gpustack_settings": {"root": str(honest)},
    }


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example host of the talk."""
    directory = tmp_path_factory.mktemp("examples")
    write_host(directory / "talk", EXAMPLES["talk"]("talk"))
    return directory


@pytest.fixture
def hostile(tmp_path: Path, templates: Path) -> Place:
    """Two hosts; ``evil`` answers every module with facts, and is otherwise like ``talk``."""
    place = Place(path=tmp_path, templates=templates)
    place.spec(SPEC)
    honest = place.add("talk")
    place.add("talk", "evil", ansible_python_interpreter=str(place.path / "python"))
    answer = json.dumps({"changed": False, "ansible_facts": forged(honest), "facts": {}})
    program = place.path / "python"
    program.write_text(f"#!{interpreter()}\nprint({answer!r})\n", encoding="utf-8")
    program.chmod(0o755)
    return place


def ansible_of(place: Place, version: str, program: str, *arguments: str, cache: bool = False) -> str:
    """Run a program of ansible-core with the place's inventory, and return its output."""
    if not supported(version):
        pytest.skip("this Python does not run the lowest ansible-core")
    cached = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(place.path / "facts")}
    process = subprocess.run(
        [str(Path(sys.executable).with_name(program)), "-i", "inventory.json", *arguments],
        cwd=place.path,
        env={**environment(place.path), **environment_of(version), **(cached if cache else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout + process.stderr


def play(place: Place, playbook: str, version: str, *arguments: str, cache: bool = False, **values: Any) -> str:
    """Run a playbook as the documentation prints it, and return its output."""
    place.inventory()
    path = str(PLAYBOOKS / f"{playbook}.yml")
    return ansible_of(place, version, "ansible-playbook", path, "-e", json.dumps(values), *arguments, cache=cache)


def assert_refused(output: str, host: str = "evil") -> None:
    """The host failed for its facts, in one line, and the others did not fail for them."""
    lines = [line for line in output.splitlines() if "GPU480" in line]
    assert [line for line in lines if line.startswith(f"fatal: [{host}]: ")], output
    assert not [line for line in lines if line.startswith("fatal: ") and f"[{host}]" not in line], output


@pytest.mark.parametrize(
    ("playbook", "ansible"),
    [("prepare", "lowest"), ("prepare", "newest"), ("undo", "newest"), ("nova", "lowest")],
)
def test_a_host_sets_no_option(hostile: Place, playbook: str, ansible: str) -> None:
    before = tree(hostile.path / "roots")
    groups = {"gpustack_nova_services": ["compute"]}
    output = play(hostile, playbook, ansible, "--check", **(groups if playbook == "nova" else {}))
    assert_refused(output)
    assert tree(hostile.path / "roots") == before
    if playbook != "nova":
        assert re.search(r"^talk +: .*unreachable=0 +failed=[01]", output, re.MULTILINE), output


@pytest.mark.parametrize("ansible", ["lowest", "newest"])
def test_a_fact_cache_brings_no_option(hostile: Place, ansible: str) -> None:
    hostile.inventory()
    ansible_of(hostile, ansible, "ansible", "evil", "-m", "ansible.builtin.ping", cache=True)
    output = play(hostile, "undo", ansible, "--check", cache=True)
    assert "[evil]" not in output.partition("TASK [gpustack : Read the host]")[2].partition("PLAY RECAP")[0]
    assert_refused(output)
    assert "--flush-cache" in output


def test_a_fact_hides_no_variable_of_the_inventory(hostile: Place) -> None:
    """An option of the operator may be a template with such a variable."""
    hostile.variables["evil"] |= {"short_name": "evil", "gpustack_compute_host": "{{ short_name }}"}
    answer = json.dumps({"changed": False, "ansible_facts": {"short_name": "talk"}, "facts": {}})
    (hostile.path / "python").write_text(f"#!{interpreter()}\nprint({answer!r})\n", encoding="utf-8")
    hostile.inventory()
    ansible_of(hostile, "newest", "ansible", "evil", "-m", "ansible.builtin.ping", cache=True)
    assert_refused(play(hostile, "verify", "newest", cache=True))


def test_only_settings_resolve_options() -> None:
    """Tasks, variables and plugins of a role read an option from ``gpustack_settings``, which facts can't replace."""
    for role in sorted(ROLES.iterdir()):
        specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        options = {name for entry in specs.values() for name in entry["options"]}
        generated = role / "tasks/settings.yml"
        for path in {*role.glob("tasks/*.yml"), *role.glob("vars/*.yml")} - {generated}:
            code = "\n".join(re.findall(r"\{\{[\s\S]*?\}\}|(?:when|that):.*", path.read_text(encoding="utf-8")))
            expressions = re.sub(r"'(?:[^'\\]|\\.)*'", "", code)
            names = re.findall(
                r"(?<!\.)\bgpustack_\w+|\binventory_hostname\w*|\bgroup_names\b|\bhostvars\b", expressions
            )
            assert not {name for name in names if name in options or not name.startswith("gpustack_")}, path
        for path in role.glob("tasks/*.yml"):
            entry = path.stem
            if entry in specs and entry != "main":
                first = yaml.safe_load(path.read_text(encoding="utf-8"))[0]
                assert "settings.yml" in str(first), path

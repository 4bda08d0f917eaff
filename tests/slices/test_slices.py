"""A fleet of example hosts in slices, as jobs of AWX run them: with ansible-runner, each on its own hosts.

``make slices`` installs ansible-runner first. CI joins two slices without it: ``tests/unit/playbooks/test_records.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.store import save_snapshot
from gpustack_demo.examples.host import write_host
from support.joined_plans import differences
from support.playbook_place import EXAMPLES, SPEC, environment

HOSTS = int(os.environ.get("GPUSTACK_SLICED_HOSTS", "200"))
RUNNER = Path(sys.executable).with_name("ansible-runner")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The roots of all hosts, the spec, and a snapshot of what one controller reads."""
    place = tmp_path_factory.mktemp("fleet")
    kinds = list(EXAMPLES)
    (place / "templates").mkdir()
    for name, make in EXAMPLES.items():
        write_host(place / "templates" / name, make(name))
    facts = []
    for number in range(HOSTS):
        kind = kinds[number % len(kinds)]
        root = place / "roots" / f"{kind}-{number:03}"
        shutil.copytree(place / "templates" / kind, root, symlinks=True)
        facts.append({**collect(str(root)), "hostname": root.name})
    save_snapshot(place / "fleet.json", facts)
    (place / "gpustack.yaml").write_text(SPEC, encoding="utf-8")
    return place


def job(directory: Path, hosts: list[str], fleet: Path) -> Path:
    """Run one slice; returns its record."""
    of_hosts: Mapping[str, object] = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "gpustack_root": f"{fleet}/roots/{{{{ inventory_hostname }}}}",
        "gpustack_spec": str(fleet / "gpustack.yaml"),
    }
    for name, content in {
        "inventory/hosts.yaml": {"all": {"hosts": dict.fromkeys(hosts), "vars": of_hosts}},
        "env/envvars": {"ANSIBLE_CALLBACKS_ENABLED": "nova_gpustack.passthrough.gpustack_events", "ANSIBLE_FORKS": "4"},
        "env/settings": {"suppress_env_files": True},
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    (directory / "project").mkdir()
    (directory / "home").mkdir()
    command = [RUNNER, "run", directory, "--playbook", "nova_gpustack.passthrough.plan", "--ident", "job", "--quiet"]
    variables = {**environment(directory / "home"), "PATH": f"{RUNNER.parent}:{os.environ['PATH']}"}
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    records = list((directory / "artifacts/job").glob("gpustack-plan-*.json"))
    assert len(records) == 1, run.stdout + run.stderr
    return records[0]


@pytest.mark.parametrize("slices", [1, 4, 7])
def test_plans_of_slices_join_to_the_plan_of_one_controller(slices: int, fleet: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (fleet / "roots").iterdir())
    records = tmp_path / "records"
    records.mkdir()
    for number in range(slices):
        record = job(tmp_path / f"job{number}", names[number::slices], fleet)
        shutil.copy(record, records / f"slice{number}.json")
    assert len(json.loads((records / "slice0.json").read_text(encoding="utf-8"))["hosts"]) == len(names[::slices])
    assert differences(fleet / "gpustack.yaml", fleet / "fleet.json", records) == []

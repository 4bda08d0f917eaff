"""Options keep their sources: group_vars, host_vars and ``-e``, with templates."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support import warm
from support.lowest_ansible import environment_of, supported
from support.playbook_place import environment

PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: nova_gpustack.passthrough.gpustack, tasks_from: settings}
      vars: {gpustack_live_timeout: "{{ number }}"}
    - ansible.builtin.copy: {content: "{{ gpustack_settings | to_json }}", dest: "{{ playbook_dir }}/settings.json"}
"""
GROUP = """\
domain: example.org
number: 7
gpustack_hostname: "{{ inventory_hostname_short }}.{{ domain }}"
gpustack_command_prefix: ["chroot", "{{ place }}"]
gpustack_reboot: "{{ number > 5 }}"
gpustack_spec: of-the-group.yaml
"""
HOST = 'place: /mnt/{{ number }}\ngpustack_spec: "{{ inventory_hostname }}.yaml"\ngpustack_guests_timeout: "60"\n'
VERSIONS = [version for version in ("newest", "lowest") if supported(version)]


def settings(directory: Path, version: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """The resolved options, and the output."""
    for name, text in {
        "play.yml": PLAY,
        "inventory": "gpu01.lan ansible_connection=local ansible_become=false\n",
        "group_vars/all.yml": GROUP,
        "host_vars/gpu01.lan.yml": HOST + f"ansible_python_interpreter: {json.dumps(warm.outside())}\n",
    }.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    process = warm.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory", "play.yml", *arguments],
        cwd=directory,
        env={**environment(directory), **environment_of(version)},
    )
    result = directory / "settings.json"
    resolved = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    return resolved, process.stdout + process.stderr


@pytest.mark.parametrize("version", VERSIONS if "GPUSTACK_ATTACKS" in os.environ else VERSIONS[-1:])
def test_options_of_each_source_keep_their_precedence_types_and_templates(tmp_path: Path, version: str) -> None:
    resolved, output = settings(tmp_path, version, "-e", "gpustack_root={{ place }}/root")
    expected = {
        "host": "gpu01.lan",
        "hostname": "gpu01.example.org",
        "command_prefix": ["chroot", "/mnt/7"],
        "reboot": True,
        "spec": "gpu01.lan.yaml",
        "guests_timeout": 60,
        "live_timeout": 7,
        "root": "/mnt/7/root",
        "adopt": False,
    }
    assert {name: resolved.get(name) for name in expected} == expected, output


def test_an_option_that_cannot_be_resolved_is_named(tmp_path: Path) -> None:
    resolved, output = settings(tmp_path, "newest", "-e", "gpustack_trial={{ nobody }}")
    assert not resolved
    assert "gpustack_trial" in output
    assert "'nobody' is undefined" in output


@pytest.mark.parametrize("name", ["", "fe80::1"])
def test_a_host_name_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    resolved, output = settings(tmp_path, VERSIONS[-1], "-e", json.dumps({"gpustack_hostname": name}))
    assert not resolved
    assert f"gpustack_hostname is '{name}', which is no host name: set the host's name in the spec" in output


@pytest.mark.parametrize("variable", ["gpustack_hosts", "gpustack_serial", "gpustack_nova_serial"])
def test_variables_of_the_play_are_refused_in_the_inventory(tmp_path: Path, variable: str) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/ungrouped.yml").write_text(f"{variable}: 2\n", encoding="utf-8")
    resolved, output = settings(tmp_path, VERSIONS[-1])
    assert not resolved
    assert f"{variable}: the play does not read the inventory's value; set it with -e" in output
    assert settings(tmp_path, VERSIONS[-1], "-e", f"{variable}=1")[0]


@pytest.mark.parametrize("option", ["gpustack_cloud", "gpustack_root"])
def test_an_option_without_a_value_is_named(tmp_path: Path, option: str) -> None:
    resolved, output = settings(tmp_path, VERSIONS[-1], "-e", json.dumps({option: None}))
    assert not resolved
    assert f"{option} has no value: set one, or remove the variable to use its default" in output

"""Hosts of Ansible's inventory in commands that read hosts, and groups in specs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import SpecError
from gpustack.spec.load import parse_spec
from gpustack.spec.model import models_for, options_for, patterns_for, with_groups
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from support.host_samples import snapshot
from support.sysroot import talk_host

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  a100: {match: {vendor: "10de", product: "20b5"}}
hosts:
  "group:gpu_nodes": {models: [k4200], options: {allow_unsafe_interrupts: true}}
  "group:big": [a100]
  gpu01: {models: [k4200], options: {allow_unsafe_interrupts: false}}
nova: {release: "2025.2", deployment: drop-in}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A snapshot of four hosts with groups, the spec, and an inventory of the same hosts."""
    (tmp_path / "gpustack.yaml").write_text(SPEC, encoding="utf-8")
    text = json.dumps(snapshot("k4200"))
    documents = []
    for name, groups in (("gpu01", ["gpu_nodes"]), ("gpu02", ["gpu_nodes"]), ("web01", []), ("web02", [])):
        host = json.loads(text)
        document = host["hosts"][0] if "hosts" in host else host
        documents.append({**document, "hostname": name, "inventory_groups": groups})
    (tmp_path / "hosts.json").write_text(json.dumps({"gpustack_snapshot": 1, "hosts": documents}), encoding="utf-8")
    local = "ansible_connection=local"
    (tmp_path / "hosts.ini").write_text(
        f"[gpu_nodes]\ngpu01 {local}\ngpu02 {local}\n[other]\nweb01 {local}\n", encoding="utf-8"
    )
    return tmp_path


def test_groups_are_replaced_by_their_hosts() -> None:
    spec = parse_spec(SPEC, "spec")
    groups: dict[str, Any] = {"gpu01": ["gpu_nodes"], "gpu02": ["big", "gpu_nodes"], "web01": []}
    resolved = with_groups(spec, groups)
    assert [*models_for(resolved, "gpu01")] == ["k4200"]
    assert [*models_for(resolved, "gpu02")] == ["k4200", "a100"]
    assert not patterns_for(resolved, "web01")
    assert (
        options_for(resolved, "gpu01").allow_unsafe_interrupts,
        options_for(resolved, "gpu02").allow_unsafe_interrupts,
    ) == (
        False,
        True,
    )
    with pytest.raises(SpecError, match="their hosts are not known"):
        patterns_for(spec, "gpu01")
    with pytest.raises(SpecError, match="do not record its groups"):
        with_groups(spec, {"gpu01": None})


def test_groups_of_a_snapshot_work_offline(fleet: Path, gpustack: Callable[..., Any]) -> None:
    planned = gpustack("host", "plan", fleet / "gpustack.yaml", "--snapshot", fleet / "hosts.json", "-f", "json")
    assert {plan["host"]: plan["gpus"] != [] for plan in json.loads(planned.out)} == {"gpu01": True, "gpu02": True}
    assert "left out: web[01:02]" in planned.err
    rendered = gpustack("nova", "render", fleet / "gpustack.yaml", "--snapshot", fleet / "hosts.json", "-f", "json")
    assert {file["target"] for file in json.loads(rendered.out)["files"]} >= {"gpu01", "gpu02"}


def test_a_snapshot_without_groups_is_an_error(fleet: Path, gpustack: Callable[..., Any]) -> None:
    document = json.loads((fleet / "hosts.json").read_text(encoding="utf-8"))
    for host in document["hosts"]:
        del host["inventory_groups"]
    (fleet / "hosts.json").write_text(json.dumps(document), encoding="utf-8")
    for command in (("host", "plan"), ("nova", "render"), ("flavor", "plan")):
        ran = gpustack(*command, fleet / "gpustack.yaml", "--snapshot", fleet / "hosts.json")
        assert ran.code == 10
        assert "do not record its groups" in ran.err


def test_the_root_of_a_host_in_the_inventory_is_read(tmp_path: Path, gpustack: Callable[..., Any]) -> None:
    """Machines whose names differ from the inventory's are one warning, also if all of a large fleet do."""
    talk_host(tmp_path / "a root")
    (tmp_path / "hosts").write_text("[gpus]\nn[01:40]\n[gpus:vars]\nansible_connection=local\n", encoding="utf-8")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "gpus").write_text(f'gpustack_root: "{tmp_path}/a root"\n', encoding="utf-8")
    ran = gpustack("scan", "-i", tmp_path / "hosts")
    assert "| n[01:40] | 0000:88:00.0 | NVIDIA Quadro K4200 |" in ran.out
    (warning,) = (line for line in ran.err.splitlines() if "itself" in line)
    assert warning == "warning: n[01:40] calls itself gpu01; its facts are kept under n[01:40]"


def test_a_plan_has_the_options_of_the_inventory(tmp_path: Path, gpustack: Callable[..., Any]) -> None:
    """As those of ``host apply -i``, which leaves them to the playbooks; the command line adds to them."""
    write_host(tmp_path / "root", hosts.talk_host())
    (tmp_path / "hosts").write_text(
        "[plain]\nn1\nn2 gpustack_live=no\n[tried]\nn3 gpustack_trial=yes\nn4 gpustack_hostname=gpu04\n"
        "[tried:vars]\ngpustack_trial_seconds=90\n[live]\nn5 gpustack_live='{{ wanted }}'\nn6 gpustack_live=maybe\n"
        f"[live:vars]\nwanted=true\n[all:vars]\nansible_connection=local\ngpustack_root={tmp_path}/root\n",
        encoding="utf-8",
    )
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC.partition("  a100")[0] + "hosts: {'*': [k4200]}\n", encoding="utf-8")
    ran = gpustack("host", "plan", spec, "-i", tmp_path / "hosts", "-f", "json")
    plans = {plan["host"]: plan for plan in json.loads(ran.out)}
    assert list(plans) == ["n1", "n2", "n3", "gpu04", "n5"]
    assert {name for name, plan in plans.items() if "GPU180" in str(plan["findings"])} == {"n5"}
    assert {name: plan["trial"]["seconds"] for name, plan in plans.items() if plan["trial"]} == {"n3": 90}
    assert "n6: gpustack can't honour the variable gpustack_live of the inventory" in ran.err
    tried = gpustack("host", "plan", spec, "-i", tmp_path / "hosts", "n1,n4", "--trial", "-f", "json")
    assert [plan["trial"]["seconds"] for plan in json.loads(tried.out)] == [600, 90]


@pytest.mark.parametrize(("root", "message"), [("try", "variable gpustack_root"), ("/nowhere", "/nowhere")])
def test_a_root_that_is_no_directory_is_an_error(
    tmp_path: Path, gpustack: Callable[..., Any], root: str, message: str
) -> None:
    (tmp_path / "hosts").write_text(f"n1 ansible_connection=local gpustack_root={root}\n", encoding="utf-8")
    ran = gpustack("scan", "-i", tmp_path / "hosts")
    assert (ran.code, ran.out.strip()) == (12, "")
    assert message in ran.err


def test_hosts_of_an_inventory_are_read_and_keep_their_groups(fleet: Path, gpustack: Callable[..., Any]) -> None:
    ran = gpustack("scan", "-i", fleet / "hosts.ini", "gpu_nodes", "-l", "!gpu01", "--save", fleet / "new.json")
    assert ran.code == 0
    (host,) = json.loads((fleet / "new.json").read_text(encoding="utf-8"))["hosts"]
    assert (host["hostname"], host["inventory_groups"]) == ("gpu02", ["gpu_nodes"])


def test_hosts_that_the_spec_lacks_are_left_out_unless_named(fleet: Path, gpustack: Callable[..., Any]) -> None:
    arguments = ("host", "plan", fleet / "gpustack.yaml", "-i", fleet / "hosts.ini")
    ran = gpustack(*arguments, "-l", "gpu02,other", "-f", "json")
    assert "left out: web01\n" in ran.err or ran.code == 13
    none = gpustack(*arguments, "-l", "other")
    assert none.code == 2
    assert "groups of the inventory: gpu_nodes, other (in a spec: group:NAME)" in none.err
    named = gpustack(*arguments, "web01")
    assert named.code == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--snapshot", "x"), "--snapshot and -i exclude each other"),
        (("--local",), "--local and -i exclude each other"),
        (("nosuch",), "no host of the inventory matches 'nosuch'"),
    ],
)
def test_contradicting_options_are_errors(
    fleet: Path, gpustack: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    ran = gpustack("scan", "-i", fleet / "hosts.ini", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert gpustack("scan", "-l", "gpu01").code == 2

"""Inventories: hosts with the users of the command line, and this machine."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.base.errors import HostError, UsageError
from gpustack.cli.inventory import expanded
from gpustack.connect.playbooks.inventory import AnsibleInventory, inventory_of, inventory_of_this_machine, limit_of
from gpustack.connect.ssh.config import HostSettings, SshConfig, SshOptions
from support.lowest_ansible import environment_of, supported


def test_each_host_has_the_user_of_its_name() -> None:
    hosts = json.loads(inventory_of(["gpu01", "root@gpu02", "a@b@gpu03"]))["all"]["hosts"]
    assert hosts == {"gpu01": {}, "gpu02": {"ansible_user": "root"}, "gpu03": {"ansible_user": "a@b"}}


def test_this_machine_uses_a_python_outside_the_environment() -> None:
    ((name, variables),) = json.loads(inventory_of_this_machine())["all"]["hosts"].items()
    assert (name, variables["ansible_connection"]) == (platform.node(), "local")
    assert variables["ansible_python_interpreter"] == str(Path(sys.executable).resolve())


def test_a_limit_has_one_name_a_line() -> None:
    assert limit_of(["gpu01", "gpu02"]) == "gpu01\ngpu02\n"
    assert limit_of([]) == ""


INVENTORY = """\
[gpu_nodes]
gpu[01:03] ansible_host='{{ prefix }}.1' prefix=192.0.2 ansible_port=2222

[rack7]
gpu01 ansible_become=true ansible_user=admin ansible_ssh_private_key_file=~/key
gpu02 ansible_connection=local
gpu03 ansible_ssh_common_args="-o ProxyJump=bastion -o StrictHostKeyChecking=no -o ControlMaster=auto -i other"

[odd]
odd01 ansible_ssh_pass=x
odd02 ansible_connection=winrm
odd03 ansible_become=true ansible_become_method=doas
odd04 ansible_ssh_common_args="-o PreferredAuthentications=password"
odd05 ansible_port=ssh
odd06 ansible_ssh_executable=/opt/ssh
odd07 ansible_become=true ansible_become_password=x
odd08 ansible_ssh_common_args="-o 'ProxyJump=bastion"
odd09 gpustack_hostname="gpu 9"
even01 ansible_become_password=x ansible_ssh_pipelining=true ansible_ssh_host_key_checking=false
"""


@pytest.fixture
def inventory(tmp_path: Path) -> AnsibleInventory:
    (tmp_path / "hosts.ini").write_text(INVENTORY, encoding="utf-8")
    return AnsibleInventory([str(tmp_path / "hosts.ini")])


@pytest.mark.parametrize(
    ("patterns", "limit", "names"),
    [
        ([], None, 13),
        (["gpu_nodes"], None, ["gpu01", "gpu02", "gpu03"]),
        (["gpu_nodes[1:2]"], None, ["gpu02", "gpu03"]),
        (["gpu[02:03]"], None, ["gpu02", "gpu03"]),
        (["gpu*", "!gpu02"], None, ["gpu01", "gpu03"]),
        (["rack7"], "gpu0?:&gpu_nodes", ["gpu01", "gpu02", "gpu03"]),
        (["rack7"], "gpu[02:03]", ["gpu02", "gpu03"]),
        ([], "gpu_nodes:!gpu[02:03]", ["gpu01"]),
        (["gpu_nodes"], "rack7,&gpu[01:02]", ["gpu01", "gpu02"]),
        (["rack7"], "gpu_nodes[1:2]", ["gpu02", "gpu03"]),
        (["gpu01,odd01"], None, ["gpu01", "odd01"]),
    ],
)
def test_patterns_select_hosts(
    inventory: AnsibleInventory, patterns: list[str], limit: str | None, names: list[str] | int
) -> None:
    selected = inventory.select(patterns, limit, expanded)
    assert (selected if isinstance(names, list) else len(selected)) == names


@pytest.mark.parametrize(("patterns", "limit"), [(["gpu9"], None), (["localhost"], None), (["gpu01"], "gpu02")])
def test_patterns_without_a_host_are_errors(
    inventory: AnsibleInventory, patterns: list[str], limit: str | None
) -> None:
    with pytest.raises(UsageError, match="no host of the inventory") as caught:
        inventory.select(patterns, limit, expanded)
    assert caught.value.remedy == "groups of the inventory: gpu_nodes, odd, rack7"


def test_variables_of_connections_are_honoured(inventory: AnsibleInventory) -> None:
    assert inventory.groups("gpu01") == ("gpu_nodes", "rack7")
    first, second, third = (inventory.settings(name) for name in ("gpu01", "gpu02", "gpu03"))
    assert (first.address, first.port, first.user, first.sudo) == ("192.0.2.1", 2222, "admin", True)
    assert first.identity == Path("~/key").expanduser()
    assert second.local
    assert third.options == {"proxyjump": "bastion", "identityfile": ["other"]}
    target = SshConfig.load(SshOptions(settings=inventory.settings)).target("gpu03")
    assert (target.name, target.hostname, target.port, target.jumps) == ("gpu03", "192.0.2.1", 2222, ("bastion",))
    assert inventory.settings("even01") == inventory.settings("not in the inventory") == HostSettings()


@pytest.mark.parametrize(
    ("host", "variable"),
    [
        ("odd01", "ansible_ssh_pass"),
        ("odd02", "ansible_connection"),
        ("odd03", "ansible_become_method"),
        ("odd04", "ansible_ssh_common_args"),
        ("odd05", "ansible_port"),
        ("odd06", "ansible_ssh_executable"),
        ("odd07", "ansible_become_password"),
        ("odd08", "ansible_ssh_common_args (No closing quotation)"),
        ("odd09", "gpustack_hostname"),
    ],
)
def test_other_variables_of_connections_refuse_their_host(
    inventory: AnsibleInventory, host: str, variable: str
) -> None:
    with pytest.raises(HostError, match=re.escape(variable)) as caught:
        inventory.settings(host)
    assert caught.value.where == host


def test_a_broken_inventory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file or directory"):
        AnsibleInventory([str(tmp_path / "none")])
    (tmp_path / "hosts.yml").write_text("all: {hosts: [", encoding="utf-8")
    with pytest.raises(UsageError, match="can't be used"):
        AnsibleInventory([str(tmp_path / "hosts.yml")])


LINES = {
    "quote.ini": '[g]\ngpu01 ansible_password="geheim\n',
    "blank.ini": "[g:vars]\nansible_password geheim " + "and so on " * 20 + "geheim\n",
    "word.ini": "[g]\ngpu01 geheim\n",
    "section.ini": "[g]\ngpu01\n[geheim g]\n",
    "child.ini": "[g:children]\nansible_password = geheim\n",
    "alias.yaml": "g:\n  hosts:\n    gpu01:\n      ansible_become_password: *geheim\n",
    "template.yaml": "g: {hosts: {gpu01: {ansible_host: \"{{ 'geheim' | nosuch }}\"}}}\n",
}


@pytest.mark.parametrize("ansible", ["lowest", "newest"])
def test_no_error_of_ansible_quotes_a_line(ansible: str, tmp_path: Path) -> None:
    if not supported(ansible):
        pytest.skip("this Python is newer")
    for name, text in LINES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    reads = """
import pathlib, sys
from gpustack.base.errors import UsageError
from gpustack.connect.playbooks.inventory import AnsibleInventory
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        AnsibleInventory([str(path)]).settings("gpu01")
    except UsageError as error:
        print(f"refused: {error}")
"""
    environment = {**os.environ, **environment_of(ansible), "COLUMNS": "80"}
    command = [sys.executable, "-c", reads, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.count("refused: ") == len(LINES)
    assert "Failed to parse" in ran.stderr.replace("\n", " ")
    assert "geheim" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("text", "problem"), [("[defaults]\nforks = many\n", "DEFAULT_FORKS"), ("forks = 1\n", "no section headers")]
)
def test_a_wrong_configuration_of_ansible_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    """Ansible reads it when it is imported, so this needs a process of its own."""
    (tmp_path / "ansible.cfg").write_text(text, encoding="utf-8")
    variables = {**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "gpustack", "scan", "-i", "gpu01,"]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.startswith("gpustack: Ansible does not start: ")) == (2, True), ran.stderr
    assert problem in ran.stderr
    assert "correct ansible.cfg" in ran.stderr


def test_an_ansible_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    """Its home may be read-only, as that of a service: it was reported as a fault of gpustack."""
    script = "import sys; from gpustack.cli.app import main; sys.exit(main(['scan', '-i', 'gpu01,', 'gpu01']))"
    variables = {**os.environ, "ANSIBLE_HOME": "/dev/null/ansible"}
    variables.pop("ANSIBLE_LOCAL_TEMP", None)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=variables, check=False)
    assert ran.returncode == 2
    assert "Ansible does not start: Unable to create local directories" in ran.stderr
    assert "ANSIBLE_HOME replaces" in ran.stderr


def test_a_vault_without_its_password_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3030\n", encoding="utf-8")
    (tmp_path / "hosts.ini").write_text("gpu01\n", encoding="utf-8")
    with pytest.raises(UsageError, match="vault"):
        AnsibleInventory([str(tmp_path / "hosts.ini")]).settings("gpu01")


def test_two_inventories_with_one_host_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("[a]\ngpu01 ansible_port=1\n[empty]\n", encoding="utf-8")
    (tmp_path / "b.ini").write_text("[b]\ngpu01 ansible_port=2\n", encoding="utf-8")
    both = AnsibleInventory([str(tmp_path / "a.ini"), str(tmp_path / "b.ini")])
    assert both.select([], None, expanded) == ["gpu01"]
    assert both.groups("gpu01") == ("a", "b")
    assert both.settings("gpu01").port == 2
    with pytest.raises(UsageError, match="'empty'"):
        both.select(["empty"], None, expanded)

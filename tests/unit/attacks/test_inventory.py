"""Neither the inventory, the environment nor a configuration of Ansible switches the check of host keys off."""

from __future__ import annotations

import configparser
import contextlib
import io
import shlex
from pathlib import Path

import pytest

from gpustack.base.errors import HostError, UsageError
from gpustack.base.text import printable
from gpustack.connect.playbooks.inventory import AnsibleInventory
from gpustack.connect.playbooks.run import AnsibleConfiguration, configuration, unchecked_keys
from support.attacks import attacked, variants

LAX = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
VARIABLES = {
    "ANSIBLE_HOST_KEY_CHECKING": "False",
    "ANSIBLE_PARAMIKO_HOST_KEY_AUTO_ADD": "True",
    "ANSIBLE_SSH_ARGS": LAX,
}


def checked(configured: AnsibleConfiguration, variables: dict[str, str], directory: Path) -> None:
    made = configured.environment(variables, directory)
    assert made["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert made["ANSIBLE_PARAMIKO_HOST_KEY_AUTO_ADD"] == "False"
    # ssh uses the first value of an option.
    first = next(word for word in shlex.split(made["ANSIBLE_SSH_ARGS"]) if word.startswith("StrictHostKeyChecking"))
    assert first == "StrictHostKeyChecking=yes"


def environment(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    checked(configuration({"HOME": str(directory)}, directory, system=directory / "none"), dict(VARIABLES), directory)


def file_of_the_user(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    parser = configparser.RawConfigParser()
    parser.read_dict({"defaults": {"host_key_checking": "False"}, "ssh_connection": {"ssh_args": LAX}})
    with (directory / ".ansible.cfg").open("w", encoding="utf-8") as stream:
        parser.write(stream)
    checked(configuration({"HOME": str(directory)}, directory), {"HOME": str(directory)}, directory)


def file_of_the_directory(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "ansible.cfg").write_text("[defaults]\ncallback_plugins = .\n", encoding="utf-8")
    assert configuration({"HOME": "/nowhere"}, directory, system=directory / "none").path is None


def warning(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible's warnings about an inventory name its keys, which clouds and scripts choose.

    A process prints each warning once, so the key has the directory of the test.
    """
    path = directory / "inventory.yml"
    path.write_text(f'all:\n  hosts: {{gpu01: }}\n  "\\e]0;owned {directory}\\a\\u202e": {{}}\n', encoding="utf-8")
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        AnsibleInventory([str(path)])
    assert "owned" in shown.getvalue()
    assert printable(shown.getvalue()) == shown.getvalue()


def unreadable(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no file or directory"):
        AnsibleInventory(["/dev/zero"])
    (directory / "inventory").write_text(f"gpu01 ansible_port={10**30}\ngpu02 ansible_port=65535\n", encoding="utf-8")
    inventory = AnsibleInventory([str(directory / "inventory")])
    with pytest.raises(HostError, match="ansible_port"):
        inventory.settings("gpu01")
    assert inventory.settings("gpu02").port == 65535


NESTED = {
    "levels": "[" * 101 + "]" * 101,
    "many levels": "[" * 50_000,
    "block": "\n" + "- " * 50_000,
    "mappings": "{a: " * 50_000,
    "aliases": "[&a0 [x], " + ", ".join(f"&a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 9)) + "]",
    "in JSON": f'{{"x": {"[" * 50_000}{"]" * 50_000}}}',
}


def nested(value: str, directory: Path) -> None:
    """Ansible's loader recurses in C, which ends the process, and expands aliases: in a source or in variables."""
    (directory / "hosts").write_text("gpu01\n", encoding="utf-8")
    for name in ("inventory.yml", "group_vars/all.yml"):
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"all: {value}\n", encoding="utf-8")
        with pytest.raises(UsageError, match=r"nested more than|more than \d+ values") as caught:
            AnsibleInventory([str(directory / "hosts" if "/" in name else path)]).settings("gpu01")
        assert str(caught.value.where).startswith(f"{path}:")
        path.unlink()


LARGE = {
    "a range": "gpu[1:100000000]",
    "ranges": "gpu[1:1000][1:1000]",
    "letters": "gpu[a:Z][a:Z][a:Z][a:Z][a:Z]",
    "numbers of one length": "[gpu]\ngpu[00000001:99999999].example.com ansible_user=root",
    "groups": "".join(f"[g{number}:children]\ng{number + 1}\n" for number in range(3000)),
    "groups from the last": "".join(f"[g{number}:children]\ng{number + 1}\n" for number in range(3000, 0, -1)),
}
LARGEST = "gpu[1:9:2]x[a:c][01:10]\n" + "".join(f"[g{n}:children]\ng{n + 1}\n" for n in range(99)) + "[g99]\n"


def many(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.connect.playbooks.inventory.MOST_HOSTS", 1000)
    (directory / "inventory").write_text("gpu[0:1000]\n", encoding="utf-8")
    with pytest.raises(UsageError, match="more than 1000 hosts"):
        AnsibleInventory([str(directory / "inventory")])


def large(value: str, directory: Path) -> None:
    """Ansible makes a list of the names of a range, and walks to the first group for each group."""
    path = directory / "inventory"
    path.write_text(LARGEST, encoding="utf-8")
    assert len(AnsibleInventory([str(path)]).select(["all"], None, list)) == 5 * 3 * 10
    path.write_text(value, encoding="utf-8")
    with pytest.raises(UsageError, match=r"more than 100000 hosts|groups nested more than 100 levels"):
        AnsibleInventory([str(path)])


OURS = "-o StrictHostKeyChecking=yes -C -o ControlMaster=auto -o ControlPersist=60s"
HONEST = {"host_key_checking": True, "ssh_args": OURS, "ssh_common_args": "", "control_path": None}
VARIABLES_OF_HOSTS: dict[str, dict[str, object]] = {
    "arguments": {"ssh_args": LAX},
    "no arguments": {"ssh_args": None},
    "in one word": {"ssh_args": "-oStrictHostKeyChecking=no"},
    "with other flags": {"ssh_args": "-Co 'stricthostkeychecking no' -o StrictHostKeyChecking=yes -o ControlPath=none"},
    "new keys": {"ssh_args": "-o StrictHostKeyChecking=accept-new -o ControlPath=none"},
    "flag": {"ssh_args": "-C", "host_key_checking": False},
    "after the flag": {"ssh_args": "-C", "host_key_checking": False, "ssh_common_args": "-o StrictHostKeyChecking=yes"},
    "socket": {"control_path": "/tmp/%h"},
    "directory of sockets": {"control_path_dir": "/tmp"},
    "socket in arguments": {"ssh_common_args": "-o ControlPath=/tmp/%h"},
    "socket of ssh_config": {"ssh_args": "-o StrictHostKeyChecking=yes"},
    "unreadable": {"ssh_args": "-o 'StrictHostKeyChecking=yes"},
}


def variable(changes: dict[str, object], directory: Path) -> None:
    """A connection with a variable of the inventory is refused; the same without it is not."""
    honest = {**HONEST, "control_path_dir": str(directory)}
    assert not unchecked_keys(honest, str(directory))
    assert not unchecked_keys({**honest, "ssh_common_args": LAX, "host_key_checking": False}, str(directory))
    assert unchecked_keys({**honest, **changes}, str(directory))
    assert unchecked_keys({"host_key_checking": False, "host_key_auto_add": False}, str(directory))  # paramiko
    assert not unchecked_keys({"host_key_checking": True, "host_key_auto_add": False}, str(directory))
    assert not unchecked_keys({}, str(directory))  # no SSH


def test_an_operator_of_ansible_is_warned_of_an_explicit_no_only() -> None:
    warned = {name: unchecked_keys({**HONEST, **changes}, None) for name, changes in VARIABLES_OF_HOSTS.items()}
    flags = dict.fromkeys(("flag", "after the flag"), "ansible_host_key_checking")
    arguments = dict.fromkeys(("arguments", "in one word", "with other flags"), "ansible_ssh_args")
    assert {name: setting for name, setting in warned.items() if setting} == {**flags, **arguments}


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        "environment": environment,
        "user": file_of_the_user,
        "directory": file_of_the_directory,
        "unreadable": unreadable,
        "warning": warning,
        **variants(variable, VARIABLES_OF_HOSTS),
        "many hosts": many,
        **variants(large, LARGE),
        **variants(nested, NESTED),  # the first does no harm without the door
    },
    {
        "gpustack.connect.playbooks.inventory:check_yaml": {
            "gpustack.connect.playbooks.inventory:check_yaml": lambda _text, _where: None
        },
        "gpustack.connect.playbooks.inventory:check_range": {
            "gpustack.connect.playbooks.inventory:check_range": lambda _line: None
        },
        "gpustack.connect.playbooks.run:unchecked_keys": {
            "gpustack.connect.playbooks.run:unchecked_keys": lambda _options, _sockets: ""
        },
        "gpustack.connect.playbooks.run:configuration": {
            "gpustack.connect.playbooks.run:AnsibleConfiguration.environment": lambda _self, variables, _: variables
        },
    },
)

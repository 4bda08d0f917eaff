"""Neither the inventory, the environment nor a configuration of Ansible switches the check of host keys off."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from gpustack.connect.playbooks.configuration import AnsibleConfiguration, configuration
from support.attacks import attacked

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


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {"environment": environment, "user": file_of_the_user, "directory": file_of_the_directory},
    {
        "gpustack.connect.playbooks.configuration:configuration": {
            "gpustack.connect.playbooks.configuration:AnsibleConfiguration.environment": lambda _self, variables, _: (
                variables
            )
        }
    },
)

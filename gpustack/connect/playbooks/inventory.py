"""Inventories of named hosts, or of this machine."""

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def inventory_of(hosts: Sequence[str]) -> str:
    """An inventory in JSON, which Ansible reads as YAML.

    :param hosts: names, each as ``[user@]name``.
    """
    entries: dict[str, dict[str, str]] = {}
    for host in hosts:
        user, _, name = host.rpartition("@")
        entries[name] = {"ansible_user": user} if user else {}
    return json.dumps({"all": {"hosts": entries}}, indent=2)


def inventory_of_this_machine() -> str:
    """An inventory with this machine, under its own name."""
    variables = {"ansible_connection": "local", "ansible_python_interpreter": interpreter()}
    return json.dumps({"all": {"hosts": {platform.node(): variables}}}, indent=2)


def interpreter() -> str:
    """The Python for Ansible's modules on this machine: the one that runs gpustack, outside its virtual environment.

    Ansible's discovery may choose a Python that does not run, such as a shim of pyenv. The path of the environment may
    contain a space, where ansible-core 2.16 splits it. Modules need no packages of the environment.
    """
    return str(Path(sys.executable).resolve())


def limit_of(hosts: Iterable[str]) -> str:
    """The content of a file for ``--limit @FILE``: one name per line."""
    return "".join(f"{host}\n" for host in hosts)

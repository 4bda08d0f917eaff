"""Inventories of named hosts, of a spec, or of this machine."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.errors import UsageError

if TYPE_CHECKING:
    from gpustack.spec.model import Spec

INVENTORY = "name hosts on the command line, or --local; `gpustack host apply` and `verify` also take an inventory (-i)"


def hosts_of(spec: Spec, where: str) -> tuple[str, ...]:
    """All hosts that the spec names directly or by ranges, in the spec's order.

    :raises UsageError: when a pattern contains ``*`` or ``?``, which can't be listed, or there is no host.
    """
    from gpustack.spec.hosts import expand

    hosts: dict[str, None] = {}
    for pattern in spec.hosts:
        try:
            hosts.update(dict.fromkeys(expand(pattern)))
        except ValueError as error:
            raise UsageError(f"the hosts of {where} can't be listed: {pattern!r}: {error}", remedy=INVENTORY) from error
    if not hosts:
        raise UsageError(f"{where} names no host", remedy=INVENTORY)
    return tuple(hosts)


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

# SPDX-License-Identifier: Apache-2.0
"""Action plugin that resolves all options of a role on the controller, before the host is read.

Its result is registered, and facts never replace a registered variable. So a host can't choose options.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.prepare.plugin_api import HOST_NAME, facts_refusal, keys_result

_SERIALS = {"gpustack_serial": "hosts", "gpustack_nova_serial": "compute hosts"}
_MOST_FAILURES = "gpustack_max_fail_percentage"
_OF_PLAY = ("gpustack_hosts", _MOST_FAILURES, *_SERIALS)
"""The variables that the plays read, before there is a host."""
_TYPE = ("type", "elements", "choices")


def _options(path: Path) -> dict[str, dict[str, object]]:
    """The options of a role with their types, over all entry points. Ansible itself checks which are required."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values()
    options = {name: option for entry in entries for name, option in entry["options"].items()}
    return {name: {key: option[key] for key in _TYPE if key in option} for name, option in options.items()}


_ROLES = {
    path.parent.parent.name: _options(path)
    for path in (Path(__file__).parents[2] / "roles").glob("*/meta/argument_specs.yml")
}

_WITH_URL = (
    "gpustack_cleanup_arguments has --db-url, and Ansible prints arguments: "
    "write the connection into a nova.conf, and set gpustack_cleanup_config to this file"
)
_OF_WORDS = ("_command", "_command_prefix")
"""How the names of options with a command end."""


def _words(text: str) -> list[str]:
    try:
        parsed = yaml.safe_load(text)
        return list(map(str, parsed)) if isinstance(parsed, list) else shlex.split(text)
    except (ValueError, yaml.YAMLError):
        return text.split()


_OF_MODULES = ("ansible_", "facter_", "ohai_", "services", "packages")
"""The names of the facts that Ansible's own modules return, or how these begin."""


def _hiding(task_vars: Mapping[str, Any]) -> list[str]:
    """The facts that hide a variable of the inventory: templates of the operator may use it."""
    host, manager = task_vars["inventory_hostname"], task_vars["hostvars"]._variable_manager
    facts: Mapping[str, Any] = {}
    with contextlib.suppress(KeyError):  # no facts
        facts = manager._fact_cache.get(host) or {}  # by the names that the host sent, unlike ansible_facts
    names = [name for name in facts if not name.startswith(_OF_MODULES)]
    if not names:
        return []
    without_facts = object.__new__(type(manager))  # copy() loses the loader
    without_facts.__dict__.update(manager.__dict__)
    without_facts._fact_cache = without_facts._nonpersistent_fact_cache = types.SimpleNamespace(
        get=lambda name, default=None: {}
    )
    inventory = without_facts.get_vars(host=without_facts._inventory.get_host(host), include_hostvars=False)
    return sorted(name for name in names if name in inventory)


class ActionModule(Base):
    """``gpustack_options``: each option, named without ``gpustack_``, and the host's name (``host``)."""

    @property
    def arguments(self) -> Mapping[str, Mapping[str, object]]:
        """The options of the task's role."""
        return _ROLES[Path(self._task._role._role_path).name]

    def resolve(self, task_vars: Mapping[str, Any]) -> None:
        """Take the options from the variables. As arguments, each would be a template, compiled for each host."""
        if wrong := self._unread(task_vars) or self._misread(task_vars):
            raise AnsibleActionFail(wrong)
        found = {}
        for name in self.arguments:
            try:
                found[name] = self._templar.template(task_vars.get(name, ""))
            except AnsibleError as error:
                raise AnsibleActionFail(f"{name}: {error}") from None
            if found[name] is None:  # `gpustack_cloud:` in a YAML file
                raise AnsibleActionFail(f"{name} has no value: set one, or remove the variable to use its default")
            text = found[name] if name.endswith(_OF_WORDS) and isinstance(found[name], str) else ""
            if text and (words := _words(text)) != [text]:
                # Ansible would split it at commas alone: its first word is then the name of no program.
                raise AnsibleActionFail(f"{name} is a text, expected a list of words: {json.dumps(words)}")
        if re.search(r"(?<![\w-])--db", str(found.get("gpustack_cleanup_arguments"))):
            raise AnsibleActionFail(_WITH_URL)
        self._task.args = {name: value for name, value in found.items() if value != task_vars.get("omit")}

    def _unread(self, task_vars: Mapping[str, Any]) -> str:
        """The error of variables of the play in the inventory: Ansible has no host when it reads them for the play."""
        named = [name for name in _OF_PLAY if name in task_vars]
        if named:
            variables = self.of_play(task_vars)
            named = [name for name in named if name not in variables]
        return f"{', '.join(named)}: the play does not read the inventory's value; set it with -e" if named else ""

    def _misread(self, task_vars: Mapping[str, Any]) -> str:
        """The error of values with which Ansible would change all hosts at once, or end the run without a message."""
        for name, what in _SERIALS.items():
            serial = self._templar.template(task_vars.get(name, ""))
            if not serial:  # the default of the play
                continue
            try:
                parsed = yaml.safe_load(str(serial))
            except yaml.YAMLError:
                parsed = serial
            sizes = [str(size) for size in parsed] if isinstance(parsed, list) else [str(parsed)]
            if not sizes or any(re.fullmatch(r"-.*|0*(\.\d*)?", size) for size in sizes):
                return f"{name} is {serial}, so Ansible would change all {what} at once: set it to 1 or more"
            if not all(re.fullmatch(r"[0-9]+%?", size) for size in sizes):
                return f"{name} is {serial}, expected a number of hosts, a percentage of them (25%), or a list of these"
        most = self._templar.template(task_vars.get(_MOST_FAILURES, "")) or 0
        if not re.fullmatch(r"(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?)%?", str(most)):
            return f"{_MOST_FAILURES} is {most}, expected 0 to 100"
        return ""

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values with the types that the role declares."""
        host = task_vars["inventory_hostname"]
        for name, value in args.items():
            if name.endswith("_hostname") and HOST_NAME.fullmatch(value) is None:
                raise AnsibleActionFail(f"{name} is {value!r}, which is no host name: set the host's name in the spec")
        if names := _hiding(task_vars):
            return dict(facts_refusal(host, names, constants.CACHE_PLUGIN))
        # `gpustack host apply` sets both variables.
        sockets = os.environ.get("ANSIBLE_SSH_CONTROL_PATH_DIR") if "GPUSTACK_EVENTS_FD" in os.environ else None
        keys: Mapping[str, Any] = keys_result(host, self._connection.get_options(), sockets) or {}
        values = {name.removeprefix("gpustack_"): value for name, value in args.items()}
        return {"host": host, "pipelining": self._pipelining(), **values, **keys}

    def _pipelining(self) -> bool:
        """Whether modules are pipelined: yes, unless the environment or ansible.cfg decides otherwise."""
        try:
            value, origin = constants.config.get_config_value_and_origin(
                "pipelining", plugin_type="connection", plugin_name=self._connection._load_name
            )
        except AnsibleError:  # a connection without this option
            return True
        return bool(value) or origin == "default"

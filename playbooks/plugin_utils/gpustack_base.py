# SPDX-License-Identifier: Apache-2.0
"""Base class of the action plugins that call gpustack on the controller.

Ansible loads a plugin once and forks for each task and host; an import inside a function would run again in every fork.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

VERSION = "0.2.0.dev0"
"""The version of the collection; ``tools/release`` sets it."""

if any(importlib.metadata.distributions(name="gpustack")):
    raise AnsibleError(
        f"the environment of {sys.executable} contains the distribution gpustack, another project that overwrites "
        "files of nova-gpustack; this task changed no host: install nova-gpustack in an environment of its own"
    )
try:
    from gpustack import __version__ as installed
    from gpustack.errors import GpustackError
except ImportError as error:
    raise AnsibleError(
        f"gpustack is not installed for the Python that runs Ansible, {sys.executable}: run ansible-playbook from "
        "gpustack's own environment, or install nova-gpustack beside Ansible"
    ) from error
if installed != VERSION:
    raise AnsibleError(
        f"the playbooks are of gpustack {VERSION}, but gpustack {installed} is installed for {sys.executable}; this "
        f"task changed no host. To continue, run `{sys.executable} -m pip install nova-gpustack=={VERSION}`, or remove "
        f"the collection in {Path(__file__).parents[2]}: Ansible then uses the one in the directory that "
        "`gpustack playbook path` prints"
    )
from gpustack.base.files import read_text  # noqa: E402
from gpustack.base.task_results import TaskResult  # noqa: E402
from gpustack.prepare.plugin_api import facts_refusal, reserved, spec_seen  # noqa: E402

_RUN = uuid.uuid4().hex
"""Marks the results of this run's plugins. Forks inherit it, and hosts never see it, so facts can't contain it."""


class ActionModule(ActionBase):
    """Validates the arguments, calls gpustack, and shows its text.

    A host whose facts have the names of variables fails before that (``reserved``).

    :cvar arguments: the argument spec of the plugin.
    """

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {}

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Call gpustack and return the result of the task, with ``text`` to show."""
        raise NotImplementedError

    def resolve(self, task_vars: Mapping[str, Any]) -> None:
        """Complete the arguments of the task from the variables, before they are validated."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task on the controller."""
        result = super().run(tmp, task_vars)
        if refusal := self.refused(task_vars or {}):
            return {**result, **refusal, "run": _RUN}
        self.resolve(task_vars or {})
        args = self.validate_argument_spec(argument_spec=self.arguments)[1]
        try:
            outcome = self.outcome(self.plain(args), task_vars or {})
        except GpustackError as error:
            # Ansible prints the causes of an error too: texts of others, as they are.
            raise AnsibleActionFail(str(error)) from None
        if outcome.get("text") and outcome["text"] not in (args.get("shown"), outcome.get("msg")):
            # The log of `gpustack host verify` has the details too.
            detailed = "details" in outcome and (Display().verbosity > 0 or "GPUSTACK_EVENTS_FD" in os.environ)
            Display().display(outcome["details" if detailed else "text"])
        if outcome.get("failed"):
            outcome.pop("text", None)  # Ansible prints the complete result of a failed task
        seen = {"spec_seen": spec_seen(args["spec"])} if args.get("spec") else {}
        return {**result, **seen, "changed": False, **outcome, "run": _RUN}

    @staticmethod
    def plain(value: Any) -> Any:  # noqa: ANN401 - plain data
        """Data of Python's own types: ansible-core 2.16 has texts of its own, which no YAML writer takes."""
        try:
            return json.loads(json.dumps(value))
        except (RecursionError, TypeError, ValueError) as error:
            raise AnsibleActionFail(f"an answer of the host can't be read: {type(error).__name__}") from None

    @staticmethod
    def refused(task_vars: Mapping[str, Any], answer: Mapping[str, Any] | None = None) -> TaskResult | None:
        """The failed task of a host whose facts set variables; None for other hosts.

        :param answer: the result of a module, to check before Ansible stores its facts.
        """
        facts = (task_vars if answer is None else answer).get("ansible_facts")
        if facts and not isinstance(facts, Mapping):
            return {"failed": True, "msg": "the facts of the answer are no dictionary"}
        names = reserved(facts or {}, task_vars if answer is None else None)
        return facts_refusal(str(task_vars["inventory_hostname"]), names, constants.CACHE_PLUGIN) if names else None

    @staticmethod
    def with_groups(facts: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """The facts of a host with its groups in the inventory; a host can't name its own."""
        groups = ActionModule.plain(variables.get("group_names") or ())
        return {**ActionModule.plain(facts), "inventory_groups": [name for name in groups if name != "ungrouped"]}

    @staticmethod
    def is_named(task_vars: Mapping[str, Any]) -> bool:
        """Whether ``--limit`` names the task's host: in the inventory, where its name in the spec may differ."""
        limit = str(task_vars.get("ansible_limit") or "all")
        names = read_text(Path(limit[1:])).split() if limit.startswith("@") else re.split("[,:]", limit)
        return task_vars.get("inventory_hostname") in names

    def of_play(self, task_vars: Mapping[str, Any]) -> Mapping[str, Any]:
        """The variables with which Ansible reads the play itself: of no host."""
        variables: Mapping[str, Any] = task_vars["hostvars"]._variable_manager.get_vars(
            play=self._task._parent._play, include_hostvars=False
        )
        return variables

    @staticmethod
    def from_plugin(result: object) -> bool:
        """Whether a plugin of this class returned a result in this run. A host can't forge it: see ``_RUN``."""
        return isinstance(result, Mapping) and result.get("run") == _RUN

    @staticmethod
    def registered(task_vars: Mapping[str, Any], host: str, variable: str) -> Mapping[str, Any] | None:
        """A variable of another host, if a plugin of this class returned it in this run; facts never count."""
        value = (task_vars["hostvars"].raw_get(host) or {}).get(variable)
        return value if ActionModule.from_plugin(value) else None

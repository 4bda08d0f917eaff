# SPDX-License-Identifier: Apache-2.0
"""Decides on the controller what Nova's configuration on a host shall say, from the spec and all hosts' facts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

try:
    from gpustack.cleanup import restart as restarts
    from gpustack.errors import GpustackError
    from gpustack.nova_conf import plugin_api as controller
except ImportError:
    controller = None


class ActionModule(ActionBase):
    """``gpustack_nova``: without ``decided`` what all hosts need together, with it one host's files and commands."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Decide."""
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "spec": {"type": "str", "required": True},
                "hostname": {"type": "str", "default": ""},
                "decided": {"type": "dict"},
                "snapshot": {"type": "str", "default": ""},
                "services": {"type": "list", "elements": "str", "default": []},
                "facts": {"type": "dict"},
                "root": {"type": "str", "default": "/"},
                "kolla": {"type": "bool", "default": False},
                "restart": {"type": "str", "default": "changed", "choices": ["changed", "always", "never"]},
                "runs": {"type": "bool", "default": True},
                "databases": {"type": "list", "elements": "str", "default": []},
                "compute_host": {"type": "str", "default": ""},
                "unchecked": {"type": "list", "elements": "str", "default": []},
            }
        )
        if controller is None:
            raise AnsibleActionFail(
                f"there is no gpustack for the Python that runs Ansible, {sys.executable}: call the ansible-playbook "
                "of gpustack's own environment, or install nova-gpustack beside Ansible"
            )
        try:
            outcome = self._for_host(args, task_vars) if args["decided"] else self._overall(args, task_vars or {})
        except GpustackError as error:
            raise AnsibleActionFail(str(error)) from error
        if outcome["text"] and not outcome.get("failed"):
            Display().display(outcome["text"])
        return {**result, "changed": False, **outcome}

    def _overall(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """The facts of every compute host of the play, as an earlier task registered them; the others' from a file."""
        facts = {}
        for name in task_vars["ansible_play_hosts"]:
            variables = task_vars["hostvars"][name]
            read = variables.get("gpustack_nova_read") or {}
            if read.get("facts"):
                facts[self._name_of(variables, name)] = read["facts"]
        return controller.overall(args["spec"], facts, snapshot=args["snapshot"] or None)

    @staticmethod
    def _name_of(variables: Mapping[str, Any], name: str) -> str:
        """The name that the spec knows a host by, as the role's defaults have it."""
        return variables.get("gpustack_nova_hostname") or variables.get("gpustack_hostname") or name

    def _for_host(self, args: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        there = self._execute_module(
            module_name="gpustack_nova_config",
            module_args={"root": args["root"], "kolla": args["kolla"]},
            task_vars=task_vars,
        )
        if there.get("failed"):
            return {"text": "", "failed": True, "msg": str(there.get("msg", "the module has failed"))}
        outcome = controller.for_host(
            args["spec"],
            args["decided"],
            args["hostname"],
            services=args["services"],
            facts=args["facts"],
            there=there,
            kolla=args["kolla"],
            restart=args["restart"],
        )
        if outcome.get("failed") or not outcome["restart"] or "compute" not in outcome["services"] or not args["runs"]:
            return outcome
        return self._checked(outcome, args, task_vars)

    def _checked(
        self, outcome: dict[str, Any], args: dict[str, Any], task_vars: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The outcome, unless nova-compute must not be restarted: then nothing of it is carried out."""
        answer = self._execute_module(
            module_name="gpustack_domains", module_args={"root": args["root"]}, task_vars=task_vars
        )
        if answer.get("failed"):
            return {"text": "", "failed": True, "msg": str(answer.get("msg", "the module has failed"))}
        entries = args["decided"]["computes"].get(args["hostname"], ())
        due = restarts.Restart(
            host=args["compute_host"] or args["hostname"],
            answer=answer,
            managed=frozenset(f"{one['vendor_id']}:{one['product_id']}" for one in entries),
        )
        found = restarts.checked(due, args["databases"], args["unchecked"])
        if found.get("failed"):
            return found
        return {**outcome, "text": "\n".join(filter(None, (outcome["text"], found["text"])))}

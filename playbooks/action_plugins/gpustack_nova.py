# SPDX-License-Identifier: Apache-2.0
"""Action plugin that renders a host's Nova configuration on the controller, from the spec and all hosts' facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult
from gpustack.configure import plugin_api
from gpustack.prepare.plugin_api import printable_data
from gpustack.repair import plugin_api as restarts


def _failed(answer: Mapping[str, Any]) -> TaskResult:
    """The failed task of a module: its message is the host's."""
    return {"failed": True, "msg": printable_data(str(answer.get("msg", "the module has failed")), keep="")}


class ActionModule(Base):
    """``gpustack_nova``: without ``decided`` the settings of all hosts, with it the files and commands of one."""

    _requires_connection = True
    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "spec": {"type": "str", "required": True},
        "hostname": {"type": "str", "default": ""},
        "decided": {"type": "dict"},
        "snapshot": {"type": "list", "elements": "path", "default": []},
        "absent": {"type": "list", "elements": "str", "default": []},
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

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        return self._for_host(args, task_vars) if args["decided"] else self._overall(args, task_vars)

    def _overall(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> plugin_api.NovaNeeds | TaskResult:
        """Use the facts of the play's compute hosts, registered by an earlier task, and a snapshot of other hosts."""
        facts = {}
        for name in task_vars["ansible_play_hosts"]:
            variables = task_vars["hostvars"].raw_get(name)
            refusal: TaskResult | None = self.refused(variables)
            if refusal:
                return refusal
            settings = self.registered(task_vars, name, "gpustack_settings")
            collected = variables.get("gpustack_nova_read") or {}
            if settings and "compute" in settings["nova_services"] and collected.get("facts"):
                facts[settings["nova_hostname"]] = self.with_groups(collected["facts"], variables)
        return plugin_api.overall(args["spec"], facts, snapshot=args["snapshot"], absent=args["absent"])

    def _for_host(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        module_answer = self._execute_module(
            module_name="nova_gpustack.passthrough.gpustack_nova_config",
            module_args={"root": args["root"], "kolla": args["kolla"]},
            task_vars=task_vars,
        )
        if module_answer.get("failed"):
            return _failed(module_answer)
        outcome = plugin_api.for_host(
            args["spec"],
            args["decided"],
            args["hostname"],
            services=args["services"],
            facts=args["facts"] and self.with_groups(args["facts"], task_vars),
            module_answer=self.plain(module_answer),
            kolla=args["kolla"],
            restart=args["restart"],
            named=self.is_named(task_vars),
        )
        if outcome.get("failed") or not outcome["restart"] or "compute" not in outcome["services"] or not args["runs"]:
            return outcome
        return self._checked(outcome, args, task_vars)

    def _checked(
        self, outcome: plugin_api.NovaHostResult, args: Mapping[str, Any], task_vars: Mapping[str, Any]
    ) -> plugin_api.NovaHostResult | TaskResult:
        """Check whether nova-compute may be restarted; if not, the task fails and nothing is changed."""
        answer = self._execute_module(
            module_name="nova_gpustack.passthrough.gpustack_domains",
            module_args={"root": args["root"]},
            task_vars=task_vars,
        )
        if answer.get("failed"):
            return _failed(answer)
        entries = args["decided"]["computes"].get(args["hostname"], ())
        due = restarts.Restart(
            host=args["compute_host"] or args["hostname"],
            answer=self.plain(answer),
            managed=frozenset(f"{device['vendor_id']}:{device['product_id']}" for device in entries),
        )
        check = restarts.checked(due, args["databases"], args["unchecked"])
        if check.get("failed"):
            return check
        return {**outcome, "text": "\n".join(filter(None, (outcome["text"], check["text"])))}

# SPDX-License-Identifier: Apache-2.0
"""Action plugin that begins the turn of a batch, unless a host of an earlier batch was lost while it was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult


class ActionModule(Base):
    """``gpustack_turn``: fails if a host became unreachable after its plan, since Ansible counts failed hosts only."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "max_fail_percentage": {"type": "raw", "default": 0},
        "serial": {"type": "raw"},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Ansible has removed lost hosts from the play. The first host of the first batch shows the batches' sizes."""
        targeted = task_vars["ansible_play_hosts_all"]
        is_first = task_vars["inventory_hostname"] == task_vars["ansible_play_batch"][0] and len(targeted) > 1
        shown: TaskResult = {}
        if is_first and not any(self.registered(task_vars, name, "gpustack_begun") for name in targeted):
            shown = {
                "text": f"gpustack_serial of this run: {args['serial']} of {len(targeted)} hosts at a time. Slices of a"
                " job count their own hosts only; gpustack_max_disabled limits all of them together."
            }
        if self._percentage(args) > 0:
            return shown
        removed = set(targeted) - set(task_vars["ansible_play_hosts"])
        lost = [name for name in sorted(removed) if self._at_work(task_vars, name)]
        if not lost:
            return shown
        msg = (
            f"{', '.join(lost)}: unreachable since gpustack changed the host, so no other host is changed. Repair "
            "the connection, then run the playbook again. "
            "With gpustack_max_fail_percentage above 0, the run would continue."
        )
        return {"failed": True, "msg": msg}

    @staticmethod
    def _percentage(args: Mapping[str, Any]) -> float:
        return float(str(args["max_fail_percentage"]).replace("%", ""))  # as Ansible reads it

    def _at_work(self, task_vars: Mapping[str, Any], name: str) -> bool:
        """Whether the turn of a host had begun and its plan was made."""
        return all(self.registered(task_vars, name, variable) for variable in ("gpustack_begun", "gpustack_planned"))

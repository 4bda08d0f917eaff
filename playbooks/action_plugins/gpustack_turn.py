# SPDX-License-Identifier: Apache-2.0
"""Action plugin that begins the turn of a batch, unless a host of an earlier batch was lost while it was changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult

_OF_PLAY = ("gpustack_hosts", "gpustack_max_fail_percentage", "gpustack_serial")


class ActionModule(Base):
    """``gpustack_turn``: fails if a host became unreachable after its plan, since Ansible counts failed hosts only."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "max_fail_percentage": {"type": "raw", "default": 0},
        "serial": {"type": "raw"},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Ansible has removed lost hosts from the play. The first host of the first batch shows the batches' sizes."""
        if wrong := self._unread(task_vars) or self._wrong(args):
            return {"failed": True, "msg": wrong}
        targeted = task_vars["ansible_play_hosts_all"]
        is_first = task_vars["inventory_hostname"] == task_vars["ansible_play_batch"][0]
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

    def _unread(self, task_vars: Mapping[str, Any]) -> str:
        """The error of variables of the play in the inventory: Ansible has no host when it reads them for the play."""
        named = [name for name in _OF_PLAY if name in task_vars]
        if named:
            variables = self.of_play(task_vars)
            named = [name for name in named if name not in variables]
        return f"{', '.join(named)}: the play does not read the inventory's value; set it with -e" if named else ""

    @staticmethod
    def _percentage(args: Mapping[str, Any]) -> float:
        return float(str(args["max_fail_percentage"]).replace("%", ""))  # as Ansible reads it

    def _wrong(self, args: Mapping[str, Any]) -> str:
        """The error of values with which Ansible would change all hosts at once, or end the play without a message."""
        serial = args["serial"]
        sizes = [str(size) for size in (serial if isinstance(serial, list) else [serial])]
        if any(re.fullmatch(r"-.*|0*(\.\d*)?", size) for size in sizes):
            return f"gpustack_serial is {serial}, so Ansible would change all hosts at once: set it to 1 or more"
        if not 0 <= self._percentage(args) <= 100:
            return f"gpustack_max_fail_percentage is {args['max_fail_percentage']}, expected 0 to 100"
        return ""

    def _at_work(self, task_vars: Mapping[str, Any], name: str) -> bool:
        """Whether the turn of a host had begun and its plan was made."""
        return all(self.registered(task_vars, name, variable) for variable in ("gpustack_begun", "gpustack_planned"))

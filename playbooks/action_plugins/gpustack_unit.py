# SPDX-License-Identifier: Apache-2.0
"""Action plugin that finds the systemd unit of nova-compute on a host, unless the operator names its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base


class ActionModule(Base):
    """``gpustack_unit``: the commands that stop and start nova-compute. The host only chooses among the given units."""

    _requires_connection = True
    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "units": {"type": "list", "elements": "str", "required": True},
        "stop": {"type": "list", "elements": "str", "default": []},
        "start": {"type": "list", "elements": "str", "default": []},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``stop`` and ``start``; the latter is empty if the operator starts nova-compute by hand."""
        if args["stop"]:
            return {"stop": args["stop"], "start": args["start"]}
        unit = next((unit for unit in args["units"] if self._active(unit, task_vars)), None)
        if unit is None:
            units, host = ", ".join(args["units"]), task_vars["inventory_hostname"]
            return {
                "failed": True,
                "msg": f"none of {units} is active on {host}. Set gpustack_cleanup_stop_command "
                "and gpustack_cleanup_start_command to the commands that stop and start nova-compute",
            }
        return {"stop": ["systemctl", "stop", unit], "start": args["start"] or ["systemctl", "start", unit]}

    def _active(self, unit: str, task_vars: Mapping[str, Any]) -> bool:
        answer = self._execute_module(
            module_name="ansible.builtin.command",
            module_args={"argv": ["systemctl", "is-active", "--quiet", unit]},
            task_vars=task_vars,
        )
        return bool(answer.get("rc") == 0)

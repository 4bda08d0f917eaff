# SPDX-License-Identifier: Apache-2.0
"""Action plugin that plans a host on the controller and shows the plan; an error in the plan fails the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult
from gpustack.prepare import plugin_api


class ActionModule(Base):
    """``gpustack_plan``: a plan from spec and facts."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "spec": {"type": "str", "required": True},
        "facts": {"type": "dict", "required": True},
        "hostname": {"type": "str", "required": True},
        "adopt": {"type": "bool", "default": False},
        "live": {"type": "bool", "default": False},
        "shown": {"type": "str", "default": ""},
        "trial": {"type": "int"},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Plan the host of the task."""
        modes = {name: args[name] for name in ("adopt", "live", "trial")}
        facts = self.with_groups(args["facts"], task_vars)
        planned = plugin_api.plan(args["spec"], facts, args["hostname"], **modes, named=self.is_named(task_vars))
        # With these the role decides whether its next run needs another plan.
        settings = {"settings": task_vars.get("gpustack_settings")}
        return planned if planned.get("failed") else cast("TaskResult", {**planned, **settings})

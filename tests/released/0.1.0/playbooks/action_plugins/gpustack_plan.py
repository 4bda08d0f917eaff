# SPDX-License-Identifier: Apache-2.0
"""Action plugin that plans a host on the controller and shows the plan; an error in the plan fails the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.plugins.loader import action_loader

Base: Any = action_loader.get("gpustack_base", class_only=True)
from gpustack import plugin_api  # noqa: E402  (the base class reports a missing gpustack)
from gpustack.task_results import TaskResult  # noqa: E402


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
        return plugin_api.plan(args["spec"], args["facts"], args["hostname"], **modes)

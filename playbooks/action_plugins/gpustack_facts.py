# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the modules that run on a host: stops playbooks of another version, and hosts that set variables."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import normal
from ansible.plugins.loader import action_loader

Base: Any = action_loader.get("gpustack_base", class_only=True)


class ActionModule(normal.ActionModule):
    """``gpustack_facts``: runs the module of the task's name on the host; the base of the plugins of other modules."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module. Facts that set variables fail the host before Ansible stores them."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        refusal: dict[str, Any] | None = Base.refused(task_vars or {}) or Base.refused(task_vars or {}, result)
        return refusal or result

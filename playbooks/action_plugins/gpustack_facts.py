# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the module that reads a host: stops playbooks of another version, and hosts that set variables."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import normal
from ansible.plugins.loader import action_loader

Base: Any = action_loader.get("gpustack_base", class_only=True)


class ActionModule(normal.ActionModule):
    """``gpustack_facts``: runs the module of this name on the host."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the host. Facts that set variables fail it before Ansible stores them."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        refusal: dict[str, Any] | None = Base.refused(task_vars or {}) or Base.refused(task_vars or {}, result)
        return refusal or result

# SPDX-License-Identifier: Apache-2.0
"""Action plugin that plans the undo of a host on the controller, or verifies it, and shows the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult
from gpustack.prepare import plugin_api


class ActionModule(Base):
    """``gpustack_undo``: a plan from facts; with ``verify``, checks and findings."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "facts": {"type": "dict", "required": True},
        "hostname": {"type": "str", "required": True},
        "force": {"type": "bool", "default": False},
        "verify": {"type": "bool", "default": False},
        "initramfs": {"type": "dict"},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Plan the undo of the host of the task, or verify it."""
        if args["verify"]:
            return plugin_api.verify_undone(args["facts"], args["initramfs"], args["hostname"])
        return plugin_api.undo(args["facts"], args["hostname"], force=args["force"])

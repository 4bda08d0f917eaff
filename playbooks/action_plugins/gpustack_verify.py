# SPDX-License-Identifier: Apache-2.0
"""Action plugin that verifies a running host on the controller and shows the checks; a failed check fails the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult
from gpustack.prepare import plugin_api


class ActionModule(Base):
    """``gpustack_verify``: checks and findings from spec, facts and the content of the initramfs images."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "spec": {"type": "str", "required": True},
        "facts": {"type": "dict", "required": True},
        "initramfs": {"type": "dict"},
        "hostname": {"type": "str", "required": True},
        "trial": {"type": "bool", "default": False},
        "next": {"type": "bool", "default": False},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Verify the host of the task, or with ``next`` its boot entries."""
        spec, hostname = args["spec"], args["hostname"]
        facts = self.with_groups(args["facts"], task_vars)
        if args["next"]:
            return plugin_api.verify_next(spec, facts, hostname)
        return plugin_api.verify(
            spec, facts, args["initramfs"], hostname, trial=args["trial"], named=self.is_named(task_vars)
        )

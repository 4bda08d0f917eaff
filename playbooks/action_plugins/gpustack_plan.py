# SPDX-License-Identifier: Apache-2.0
"""Computes a host's plan on the controller, shows it, and fails when it refuses."""

from __future__ import annotations

import sys
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

try:
    from gpustack import plugin_api as controller
    from gpustack.errors import GpustackError
except ImportError:
    controller = None


class ActionModule(ActionBase):
    """``gpustack_plan``: spec and facts in, plan out."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan the host that the task runs for."""
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "spec": {"type": "str", "required": True},
                "facts": {"type": "dict", "required": True},
                "hostname": {"type": "str", "required": True},
                "adopt": {"type": "bool", "default": False},
                "live": {"type": "bool", "default": False},
                "shown": {"type": "str", "default": ""},
                "trial": {"type": "int"},
            }
        )
        if controller is None:
            raise AnsibleActionFail(
                f"there is no gpustack for the Python that runs Ansible, {sys.executable}: call the ansible-playbook "
                "of gpustack's own environment, or install nova-gpustack beside Ansible"
            )
        try:
            outcome = controller.plan(
                args["spec"],
                args["facts"],
                args["hostname"],
                adopt=args["adopt"],
                live=args["live"],
                trial=args["trial"],
            )
        except GpustackError as error:
            raise AnsibleActionFail(str(error)) from error
        if outcome["text"] != args["shown"]:
            Display().display(outcome["text"])
        if outcome.get("failed"):
            del outcome["text"]  # it was shown, and Ansible prints all of a failed result
        return {**result, "changed": False, **outcome}

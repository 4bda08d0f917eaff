# SPDX-License-Identifier: Apache-2.0
"""Computes on the controller how a host is given back, or proves that it was, and shows either."""

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
    """``gpustack_undo``: facts in, plan out; with ``verify`` checks and findings out."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan the undo of the host that the task runs for, or verify it."""
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "facts": {"type": "dict", "required": True},
                "hostname": {"type": "str", "required": True},
                "force": {"type": "bool", "default": False},
                "verify": {"type": "bool", "default": False},
                "initramfs": {"type": "dict"},
            }
        )
        if controller is None:
            raise AnsibleActionFail(
                f"there is no gpustack for the Python that runs Ansible, {sys.executable}: call the ansible-playbook "
                "of gpustack's own environment, or install nova-gpustack beside Ansible"
            )
        try:
            if args["verify"]:
                outcome = controller.verify_undone(args["facts"], args["initramfs"], args["hostname"])
            else:
                outcome = controller.undo(args["facts"], args["hostname"], force=args["force"])
        except GpustackError as error:
            raise AnsibleActionFail(str(error)) from error
        Display().display(outcome["text"])
        if outcome.get("failed"):
            del outcome["text"]  # it was shown, and Ansible prints all of a failed result
        return {**result, "changed": False, **outcome}

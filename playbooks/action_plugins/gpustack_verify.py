# SPDX-License-Identifier: Apache-2.0
"""Judges a running host on the controller, shows every check, and fails when one does."""

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
    """``gpustack_verify``: spec, facts and initramfs content in, checks and findings out."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Verify the host that the task runs for."""
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "spec": {"type": "str", "required": True},
                "facts": {"type": "dict", "required": True},
                "initramfs": {"type": "dict"},
                "hostname": {"type": "str", "required": True},
                "trial": {"type": "bool", "default": False},
                "next": {"type": "bool", "default": False},
            }
        )
        if controller is None:
            raise AnsibleActionFail(
                f"there is no gpustack for the Python that runs Ansible, {sys.executable}: call the ansible-playbook "
                "of gpustack's own environment, or install nova-gpustack beside Ansible"
            )
        try:
            if args["next"]:
                outcome = controller.verify_next(args["spec"], args["facts"], args["hostname"])
            else:
                outcome = controller.verify(
                    args["spec"], args["facts"], args["initramfs"], args["hostname"], trial=args["trial"]
                )
        except GpustackError as error:
            raise AnsibleActionFail(str(error)) from error
        Display().display(outcome["text"])
        if outcome.get("failed"):
            del outcome["text"]  # it was shown, and Ansible prints all of a failed result
        return {**result, "changed": False, **outcome}

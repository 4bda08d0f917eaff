# SPDX-License-Identifier: Apache-2.0
"""Takes a host out of Nova's service before its reboot, and gives it back: on the controller, through Nova's API."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

try:
    from gpustack.errors import GpustackError
    from gpustack.maintenance import plugin_api as controller
except ImportError:
    controller = None


class ActionModule(ActionBase):
    """``gpustack_service``: one phase (see ``gpustack.maintenance.plugin_api``) for the host of the task."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Carry the phase out; under ``--check`` only ``plan`` does anything."""
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "phase": {"type": "str", "required": True, "choices": list(controller.PHASES) if controller else None},
                "cloud": {"type": "str", "required": True},
                "hostname": {"type": "str", "required": True},
                "facts": {"type": "dict"},
                "compute_host": {"type": "str", "default": ""},
                "guests": {"type": "str", "default": "refuse"},
                "device_guests": {"type": "str", "default": "refuse"},
                "live_migratable": {"type": "list", "elements": "str", "default": []},
                "plain_ports": {"type": "list", "elements": "str", "default": []},
                "spec": {"type": "str"},
                "why": {"type": "list", "elements": "str", "default": []},
                "timeout": {"type": "int", "default": 1800},
                "reboot": {"type": "bool", "default": False},
                "disabled": {"type": "bool", "default": False},
            }
        )
        if controller is None:
            raise AnsibleActionFail(
                f"there is no gpustack for the Python that runs Ansible, {sys.executable}: call the ansible-playbook "
                "of gpustack's own environment, or install nova-gpustack beside Ansible"
            )
        if self._task.check_mode and args["phase"] != "plan":
            return {**result, "changed": False, "skipped": True}
        display = Display()
        try:
            outcome = controller.carry_out(
                args["phase"],
                args["cloud"],
                controller.target(args["hostname"], args["facts"], args["compute_host"], _others(task_vars or {})),
                controller.choices(
                    args["guests"], args["device_guests"], args["live_migratable"], args["spec"], args["plain_ports"]
                ),
                why="; ".join(args["why"]) or "its GPUs",
                seconds=args["timeout"],
                told=display.display,
                reboot=args["reboot"],
                disabled=args["disabled"],
            )
        except GpustackError as error:
            raise AnsibleActionFail(str(error)) from error
        if outcome["text"]:
            display.display(outcome["text"])
        if outcome.get("failed"):
            del outcome["text"]  # it was shown, and Ansible prints all of a failed result
        return {**result, **outcome}


def _others(task_vars: Mapping[str, Any]) -> list[str]:
    """The names of all other hosts: those of the inventory, and what the play's hosts are called in Nova."""
    own = task_vars["inventory_hostname"]
    names = [name for name in task_vars["groups"]["all"] if name != own]
    playing = (task_vars["hostvars"][name] for name in task_vars["ansible_play_hosts_all"] if name != own)
    keys = ("gpustack_compute_host", "gpustack_hostname")
    called = [variables.get(key) for variables in playing for key in keys]
    return [*names, *(str(name) for name in called if name)]

# SPDX-License-Identifier: Apache-2.0
"""Action plugin that takes a host out of service before its reboot and returns it, through Nova's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.base.task_results import TaskResult
from gpustack.prepare import plugin_api


class ActionModule(Base):
    """``gpustack_service``: one phase (see ``gpustack.prepare.plugin_api``) for the host of the task."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "phase": {"type": "str", "required": True, "choices": ["plan", "disable", "empty", "resume", "failed"]},
        "cloud": {"type": "str", "required": True},
        "hostname": {"type": "str", "required": True},
        "facts": {"type": "dict"},
        "compute_host": {"type": "str", "default": ""},
        "guests": {"type": "str", "default": "refuse"},
        "device_guests": {"type": "str", "default": "refuse"},
        "live_migratable": {"type": "list", "elements": "str", "default": []},
        "plain_ports": {"type": "list", "elements": "str", "default": []},
        "not_running": {"type": "list", "elements": "str", "default": []},
        "spec": {"type": "str"},
        "why": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 1800},
        "reboot": {"type": "bool", "default": False},
        "disabled": {"type": "bool", "default": False},
        "max_disabled": {"type": "int", "default": 0},
    }

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> TaskResult:
        """Run the phase; with ``--check``, only ``plan`` runs."""
        if self._task.check_mode and args["phase"] != "plan":
            return {"skipped": True}
        choices = ("guests", "device_guests", "live_migratable", "spec", "plain_ports", "not_running")
        return plugin_api.service_phase(
            args["phase"],
            args["cloud"],
            plugin_api.service_target(args["hostname"], args["facts"], args["compute_host"], self._others(task_vars)),
            plugin_api.service_choices(*(args[name] for name in choices)),
            why="; ".join(args["why"]) or "its GPUs",
            seconds=args["timeout"],
            log=lambda text: Display().display(plugin_api.printable_data(text, keep="")),
            reboot=args["reboot"],
            disabled=args["disabled"],
            most=args["max_disabled"],
        )

    def _others(self, task_vars: Mapping[str, Any]) -> list[str]:
        """The names of all other hosts: those in the inventory, and the Nova and spec names of the play's hosts."""
        own_name = task_vars["inventory_hostname"]
        names = [name for name in task_vars["groups"]["all"] if name != own_name]
        playing = (name for name in task_vars["ansible_play_hosts_all"] if name != own_name)
        settings = [self.registered(task_vars, name, "gpustack_settings") or {} for name in playing]
        called = [each.get(key) for each in settings for key in ("compute_host", "hostname")]
        return [*names, *(str(name) for name in called if name)]

# SPDX-License-Identifier: Apache-2.0
"""Action plugin that writes the facts of the play's hosts into a snapshot on the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.prepare import plugin_api


class ActionModule(Base):
    """``gpustack_save``: uses the facts of all hosts of the play, registered by an earlier task."""

    arguments: ClassVar[Mapping[str, Mapping[str, object]]] = {"path": {"type": "path", "required": True}}

    def outcome(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> plugin_api.SavedResult:
        """Write the snapshot; hosts without facts are named. With ``--check``, nothing is written."""
        facts, unusable = {}, {}
        for name in task_vars["ansible_play_hosts"]:
            variables = task_vars["hostvars"].raw_get(name)
            settings, collected = variables.get("gpustack_settings"), variables.get("gpustack_read") or {}
            if refusal := self.refused(variables):
                unusable[name] = refusal["msg"]
            elif not (self.from_plugin(settings) and isinstance(collected.get("facts"), Mapping)):
                unusable[name] = "the host was not read, or its answer has no facts"
            else:
                try:
                    facts[name] = settings["hostname"], self.with_groups(collected["facts"], variables)
                except AnsibleActionFail as error:
                    unusable[name] = str(error)
        removed = sorted({*task_vars["ansible_play_hosts_all"]} - {*task_vars["ansible_play_hosts"]})
        return plugin_api.save(args["path"], facts, unusable, removed, check=self._task.check_mode)

# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the modules that run on a host: stops playbooks of another version, and hosts that set variables."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import normal
from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.prepare.plugin_api import printable_data

_NO_TERMINAL = "you must have a tty to run"
"""Of sudo with ``requiretty`` (``plugins/sudoers/policy.c``). With pipelining, Ansible requests no terminal."""
_PRINTED = {"diff", "warnings", "deprecations"}
"""Results that Ansible prints as they are; after a failure, it prints all."""
_REMEDY = (
    "sudo requires a terminal (requiretty), which pipelining does not have: remove `Defaults requiretty` from the "
    "host's sudoers, or set `ansible_pipelining: false` for this host in the inventory"
)


class ActionModule(normal.ActionModule):
    """``gpustack_facts``: runs the module of the task's name on the host; the base of the plugins of other modules."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module. Facts that set variables fail the host before Ansible stores them."""
        refusal: dict[str, Any] | None = Base.refused(task_vars or {})
        if refusal:
            return refusal
        try:
            result: dict[str, Any] = super().run(tmp, task_vars)
        except AnsibleError as error:
            if _NO_TERMINAL in str(error):
                raise AnsibleActionFail(_REMEDY) from None
            raise
        if result.get("failed") and _NO_TERMINAL in str(result.get("module_stderr")):
            result["msg"] = _REMEDY
        if result.get("failed"):
            result = printable_data({name: value for name, value in result.items() if name != "exception"})
        result |= {name: printable_data(result[name]) for name in _PRINTED & result.keys()}
        refusal = Base.refused(task_vars or {}, result)
        return refusal or result

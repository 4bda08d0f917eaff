# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the module ``gpustack_image``: refuses facts that set variables, and makes all texts printable."""

from __future__ import annotations

from typing import Any

from ansible_collections.nova_gpustack.passthrough.plugins.action.gpustack_facts import ActionModule as Facts

from gpustack.prepare.plugin_api import printable_data


class ActionModule(Facts):
    """``gpustack_image``: runs the module of this name on the host."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module. Tasks loop over the output of the image's programs, and Ansible prints each item."""
        result: dict[str, Any] = printable_data(super().run(tmp, task_vars))
        return result

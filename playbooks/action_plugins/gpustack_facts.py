# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the module that reads a host: playbooks of another version stop before they reach the first host."""

from __future__ import annotations

from ansible.plugins.action import normal
from ansible.plugins.loader import action_loader

action_loader.get("gpustack_base", class_only=True)


class ActionModule(normal.ActionModule):
    """``gpustack_facts``: runs the module of this name on the host."""

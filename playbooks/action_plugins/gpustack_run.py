# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the module ``gpustack_run``: refuses facts that set variables."""

from __future__ import annotations

from typing import Any

from ansible.plugins.loader import action_loader

Facts: Any = action_loader.get("gpustack_facts", class_only=True)


class ActionModule(Facts):
    """``gpustack_run``: runs the module of this name on the host."""

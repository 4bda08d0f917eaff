# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the module ``gpustack_image``: refuses facts that set variables."""

from __future__ import annotations

from ansible_collections.nova_gpustack.passthrough.plugins.action.gpustack_facts import ActionModule as Facts


class ActionModule(Facts):
    """``gpustack_image``: runs the module of this name on the host."""

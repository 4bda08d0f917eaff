# SPDX-License-Identifier: Apache-2.0
"""Action plugin of the module ``gpustack_image``: refuses facts that set variables, and makes all texts printable."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Any

from ansible_collections.nova_gpustack.passthrough.plugins.action.gpustack_facts import ActionModule as Facts

from gpustack.prepare.plugin_api import printable_data

PR_SET_PDEATHSIG = 1


class ActionModule(Facts):
    """``gpustack_image``: runs the module of this name on the host."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module. Tasks loop over the output of the image's programs, and Ansible prints each item.

        The process of a task outlives ``ansible-playbook`` if that is killed, and with it programs of the image.
        """
        with contextlib.suppress(AttributeError):  # not Linux
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        result: dict[str, Any] = printable_data(super().run(tmp, task_vars))
        return result

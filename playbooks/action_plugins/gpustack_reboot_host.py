# SPDX-License-Identifier: Apache-2.0
"""Action plugin that reboots a host like ansible.builtin.reboot, but detects its return faster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import reboot
from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.prepare.plugin_api import printable_data

_BETWEEN = 2.0  # seconds
_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
_SHUTDOWN = "env PATH=/usr/sbin:/usr/bin:/sbin:/bin shutdown"  # independent of the user's shell


class ActionModule(reboot.ActionModule):
    """``gpustack_reboot_host``, with the options, boot id check and test command of ``ansible.builtin.reboot``.

    The base class detects the distribution and the path of shutdown on the host; here both are known (Linux, systemd).
    It also waits longer after each try, and a try over a connection from before the reboot blocks until TCP gives up,
    which can be long after the host's return.
    """

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Reboot the host, unless its facts set variables. Ansible prints its errors, which may be the host's text."""
        refusal: dict[str, Any] | None = Base.refused(task_vars or {})
        result: dict[str, Any] = refusal or printable_data(super().run(tmp, task_vars))
        return result

    def get_distribution(self, task_vars: Mapping[str, Any]) -> dict[str, str]:
        """Linux, without a query on the host."""
        return {"name": "linux", "version": "", "family": "linux"}

    def get_shutdown_command(self, task_vars: Mapping[str, Any], distribution: Mapping[str, str]) -> str:
        """The value of ``reboot_command``, else shutdown from the standard directories."""
        if self._task.args.get("reboot_command") is not None:
            return str(super().get_shutdown_command(task_vars, distribution))
        return _SHUTDOWN

    def do_until_success_or_timeout(
        self,
        action: Callable[..., None],
        reboot_timeout: float,
        action_desc: str,
        distribution: Mapping[str, str],
        action_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Repeat the action until it succeeds or the time is over, each time over a new connection."""
        end = time.monotonic() + reboot_timeout
        with self._noticing_silence():
            while True:
                try:
                    self._connection.reset()
                    action(distribution=distribution, **(action_kwargs or {}))
                except Exception as error:  # any error of a booting host
                    if time.monotonic() >= end:
                        why = f"{action_desc}: timed out after {reboot_timeout} s; the last try said: {error}"
                        raise reboot.TimedOutException(why) from error
                else:
                    return
                time.sleep(_BETWEEN)

    @contextlib.contextmanager
    def _noticing_silence(self) -> Iterator[None]:
        """Make OpenSSH end unresponsive connections. The last one is closed, since other tasks must not use it."""
        try:
            before = self._connection.get_option("ssh_extra_args")
            self._connection.set_option("ssh_extra_args", f"{before or ''} {_ALIVE}".strip())
        except (AnsibleError, KeyError):  # not an OpenSSH connection
            yield
            return
        try:
            yield
        finally:
            self._connection.set_option("ssh_extra_args", before)
            with contextlib.suppress(Exception):  # already closed
                self._connection.reset()

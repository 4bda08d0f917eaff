# SPDX-License-Identifier: Apache-2.0
"""Reboots a host as ansible.builtin.reboot does, and notices sooner that it is back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import reboot

_BETWEEN = 2.0  # seconds
_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
_SHUTDOWN = "env PATH=/usr/sbin:/usr/bin:/sbin:/bin shutdown"  # whatever shell the user has


class ActionModule(reboot.ActionModule):
    """``gpustack_reboot_host``: its options are those of ``ansible.builtin.reboot``, whose boot ids and test it keeps.

    That one asks the host what distribution it is and where its shutdown is: here it has Linux and systemd, which is
    known. It waits longer and longer between two tries; and a try over a connection that is older than the host's end
    lasts until the network gives that up, which can be long after the host is back.
    """

    def get_distribution(self, task_vars: Mapping[str, Any]) -> dict[str, str]:
        """What every host of gpustack's is."""
        return {"name": "linux", "version": "", "family": "linux"}

    def get_shutdown_command(self, task_vars: Mapping[str, Any], distribution: Mapping[str, str]) -> str:
        """Where shutdown is."""
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
        """Try until it works or the time is over, each time over a new connection."""
        end = time.monotonic() + reboot_timeout
        with self._noticing_silence():
            while True:
                try:
                    self._connection.reset()
                    action(distribution=distribution, **(action_kwargs or {}))
                except Exception as error:  # whatever keeps a host that boots from answering
                    if time.monotonic() >= end:
                        why = f"{action_desc}: timed out after {reboot_timeout} s; the last try said: {error}"
                        raise reboot.TimedOutException(why) from error
                else:
                    return
                time.sleep(_BETWEEN)

    @contextlib.contextmanager
    def _noticing_silence(self) -> Iterator[None]:
        """Have OpenSSH end a connection on which nothing comes back; the last one is of no use to other tasks."""
        try:
            before = self._connection.get_option("ssh_extra_args")
            self._connection.set_option("ssh_extra_args", f"{before or ''} {_ALIVE}".strip())
        except (AnsibleError, KeyError):  # another connection than OpenSSH's
            yield
            return
        try:
            yield
        finally:
            self._connection.set_option("ssh_extra_args", before)
            with contextlib.suppress(Exception):  # it is gone already
                self._connection.reset()

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN401 - Ansible has no types
"""Tells ``gpustack host apply`` and its siblings what happens, as JSON lines on a file descriptor.

It does nothing unless the environment variable GPUSTACK_EVENTS_FD names the descriptor, so a plain
``ansible-playbook`` is not touched by it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: gpustack_events
type: notification
short_description: events as JSON lines
description: Writes one JSON object a line for each thing that happens, to the descriptor in GPUSTACK_EVENTS_FD.
"""

_TOLD = ("msg", "text", "todo", "reboot", "findings", "plan", "verification", "cmd", "rc", "service")
_TAIL = 2000


class CallbackModule(CallbackBase):
    """One event for each start and end of a task on a host; one for each play, and one with the totals."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpustack_events"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stream = None
        self._failed_items: dict[tuple[str, str], list[dict[str, str]]] = {}
        number = os.environ.get("GPUSTACK_EVENTS_FD", "")
        if number.isdigit():
            # Nothing that outlives this process (an SSH master, say) may keep the pipe open.
            os.set_inheritable(int(number), False)
            self._stream = os.fdopen(int(number), "w", encoding="utf-8")
        else:
            self.disabled = True

    def _tell(self, event: str, **more: Any) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps({"event": event, **more}, default=str) + "\n")
            self._stream.flush()
        except OSError:
            self._stream = None  # nobody listens any more; the run goes on

    def _tell_result(self, state: str, result: Any, *, ignored: bool = False) -> None:
        found = result._result
        own = result._task.action.rpartition(".")[2].startswith("gpustack_")
        told = {key: found[key] for key in _TOLD if key in found and (own or key in ("msg", "cmd", "rc"))}
        for key in ("stderr", "stdout", "module_stderr"):
            if state == "failed" and found.get(key):
                told[key] = str(found[key])[-_TAIL:]
        items = self._failed_items.pop((result._host.get_name(), result._task._uuid), None)
        if state == "failed" and items:
            told["items"] = items
        self._tell(
            "task",
            host=result._host.get_name(),
            task=result._task.get_name().rpartition(" : ")[2].strip(),
            action=result._task.action.rpartition(".")[2],
            state=state,
            changed=bool(found.get("changed")),
            ignored=ignored,
            result=told,
        )

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._tell("play", play=play.get_name())

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._tell("no hosts")

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._tell("start", host=host.get_name(), task=task.get_name().rpartition(" : ")[2].strip())

    def v2_runner_on_ok(self, result: Any) -> None:
        self._tell_result("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._tell_result("failed", result, ignored=ignore_errors)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        found = result._result
        words = {key: found[key] for key in ("msg", "cmd") if found.get(key)}
        said = {key: str(found[key])[-_TAIL:] for key in ("stderr", "stdout") if found.get(key)}
        key = (result._host.get_name(), result._task._uuid)
        self._failed_items.setdefault(key, []).append({**words, **said})

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._tell_result("unreachable", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._tell("end", hosts={host: stats.summarize(host) for host in stats.processed})

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN401 - Ansible has no types
"""Callback plugin that reports events: to gpustack's host commands, or into a record of the run.

Without one of the environment variables below it is disabled, so that it does not affect a plain ``ansible-playbook``.
"""

from __future__ import annotations

DOCUMENTATION = """
name: gpustack_events
type: notification
short_description: a record of the run
description:
  - At the end, writes the result of each host as one JSON document, mode 0600, to GPUSTACK_RECORD. In a directory, it
    gets a name of its own. C(gpustack host results) joins the records of a fleet.
  - Jobs of ansible-runner have it among their artifacts too.
  - Ansible runs it only if ANSIBLE_CALLBACKS_ENABLED names C(nova_gpustack.passthrough.gpustack_events).
  - With GPUSTACK_EVENTS_FD, which C(gpustack host apply) sets, it writes events to that descriptor instead.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible_collections.nova_gpustack.passthrough.plugins.plugin_utils.gpustack_base import ActionModule as Base

from gpustack.errors import GpustackError
from gpustack.prepare.plugin_api import RunRecorder

_ANY = ("msg", "cmd", "rc")
"""Keys that any task may report."""
_OURS = (
    *("text", "details", "counts", "todo", "reboot", "findings", "plan", "verification", "service", "spec_seen"),
    "hostname",
)
"""Keys that only action plugins report: they run on the controller, while a host controls its modules' results."""
_PHASE = "gpustack_phase"
"""The variable of a play, block or task with its phase. Task names are for people and may change."""
_COUNTED = {"gpustack_files": ("file", "paths"), "gpustack_bind": ("card", "bound")}
"""For each module, the kind of its operations, and the list in its result that names the completed ones."""
_TAIL = 2000
_LONGEST = 64 << 10


class CallbackModule(CallbackBase):
    """One event for each start and end of a task on a host, one for each play, and one with the totals."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpustack_events"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stream = None
        self._recorder: RunRecorder | None = None
        self._playbook = ""
        self._failed_items: dict[tuple[str, str], list[dict[str, str]]] = {}
        number = os.environ.get("GPUSTACK_EVENTS_FD", "")
        if number.isdecimal():
            # Processes that outlive this one, such as an SSH master, must not keep the pipe open.
            os.set_inheritable(int(number), False)
            self._stream = os.fdopen(int(number), "w", encoding="utf-8")
        elif self._places():
            self._recorder = RunRecorder()
        else:
            self.disabled = True

    @staticmethod
    def _places() -> list[str]:
        """The files or directories for the record; the second is where ansible-runner keeps the job's artifacts."""
        return [place for name in ("GPUSTACK_RECORD", "AWX_ISOLATED_DATA_DIR") if (place := os.environ.get(name))]

    def _tell(self, event: str, **more: Any) -> None:
        try:
            text = json.dumps({"event": event, **more}, default=str)
        except (RecursionError, TypeError, ValueError):  # a malformed result of a host, which gpustack reports
            text = json.dumps({"event": event, **more, "result": None}, default=str)
        if self._recorder is not None:
            self._recorder.take(json.loads(text))
        if self._stream is None:
            return
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except OSError:
            self._stream = None  # the reader has ended; the run continues

    def _tell_result(self, state: str, result: Any, *, ignored: bool = False) -> None:
        answer = result._result
        action = result._task.action.rpartition(".")[2]
        reported = {key: answer[key] for key in _OURS if key in answer and Base.from_plugin(answer)}
        reported |= {key: _short(answer[key]) for key in _ANY if key in answer}
        for key in ("stderr", "stdout", "module_stderr"):
            if state == "failed" and answer.get(key):
                reported[key] = str(answer[key])[-_TAIL:]
        items = self._failed_items.pop((result._host.get_name(), result._task._uuid), None)
        if state == "failed" and items:
            reported["items"] = items
        self._tell(
            "task",
            host=result._host.get_name(),
            task=result._task.get_name().rpartition(" : ")[2].strip(),
            action=action,
            phase=_phase(result._task),
            state=state,
            changed=bool(answer.get("changed")),
            done=_done(action, answer),
            ignored=ignored,
            result=reported,
        )

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = Path(playbook._file_name).stem

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._tell("play", phase=_phase(play))

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._tell("no hosts")

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._tell("start", host=host.get_name(), task=task.get_name().rpartition(" : ")[2].strip())

    def v2_runner_on_ok(self, result: Any) -> None:
        self._tell_result("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._tell_result("failed", result, ignored=ignore_errors)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        answer = result._result
        texts = {key: _short(answer[key]) for key in ("msg", "cmd") if answer.get(key)}
        output = {key: str(answer[key])[-_TAIL:] for key in ("stderr", "stdout") if answer.get(key)}
        key = (result._host.get_name(), result._task._uuid)
        self._failed_items.setdefault(key, []).append({**texts, **output})

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._tell_result("unreachable", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._tell("end", hosts={host: stats.summarize(host) for host in stats.processed})
        if self._recorder is not None:
            try:
                self._recorder.save(self._places(), self._playbook, checked=bool(context.CLIARGS.get("check")))
            except GpustackError as error:
                self._display.error(str(error), wrap_text=False)


def _phase(owner: Any) -> str:
    """The phase from the playbook's text; neither hosts nor the operator's variables can change it."""
    return str(owner.get_vars().get(_PHASE, ""))


def _done(action: str, answer: Mapping[str, Any]) -> dict[str, int]:
    """The number of completed operations of a task by kind, including those of a task that failed midway."""
    if action == "gpustack_run":
        return {"command": 1} if answer.get("changed") and not answer.get("failed") else {}
    kind, key = _COUNTED.get(action, ("", ""))
    listed = answer.get(key)
    return {kind: len(listed)} if isinstance(listed, list) and listed else {}


def _short(value: Any) -> Any:
    """Text, a number or a list of words with limited length, since a host may return anything."""
    if isinstance(value, list):
        return [str(item)[:_TAIL] for item in value[:100]]
    return value if isinstance(value, int) else str(value)[:_LONGEST]

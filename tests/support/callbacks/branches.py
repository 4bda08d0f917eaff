"""An Ansible callback that records which branches the conditions of the playbooks took, for ``tools/branches``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ansible.playbook.task import Task
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: branches
type: aggregate
short_description: records the branches of conditions
description: Appends a line for each branch of each C(when) to the file in GPUSTACK_BRANCHES.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """One line for each branch: True or False, the file of the task, and the condition."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "branches"
    CALLBACK_NEEDS_ENABLED = True

    def _note(self, task: Task, false: str | None) -> None:
        with open(os.environ["GPUSTACK_BRANCHES"], "a", encoding="utf-8") as stream:
            for place, condition in conditions(task):
                stream.write(f"{condition != false}\t{place}\t{condition}\n")
                if condition == false:
                    return

    def v2_runner_on_ok(self, result: Any) -> None:
        if "results" not in getattr(result, "result", result._result):
            self._note(getattr(result, "task", None) or result._task, None)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self.v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        answer = getattr(result, "result", result._result)
        task = getattr(result, "task", None) or result._task
        if "results" not in answer and "No items" not in str(answer.get("skipped_reason")):
            self._note(task, " ".join(str(answer["false_condition"]).split()) if "false_condition" in answer else None)

    v2_runner_on_unreachable = v2_runner_item_on_ok = v2_runner_item_on_failed = v2_runner_on_ok
    v2_runner_item_on_skipped = v2_runner_on_skipped

    def v2_playbook_on_include(self, included_file: Any) -> None:
        self._note(included_file._task, None)


def conditions(task: Any) -> Iterator[tuple[str, str]]:
    """The conditions of a task, those of its blocks and imports first: the file that states it, and the condition."""
    chain = []
    while task is not None:
        chain.append(task)
        task = getattr(task, "_parent", None)
    seen: list[str] = []
    for place in reversed(chain):
        stated = getattr(place, "_when", None)
        if not isinstance(stated, list):
            continue
        file = next(path for each in chain[chain.index(place) :: -1] if (path := getattr(each, "get_path", str)()))
        # A task that ran has the conditions of its blocks and imports, too.
        outer = list(seen)
        for condition in (" ".join(str(condition).split()) for condition in stated):
            if condition in outer:
                outer.remove(condition)
            else:
                seen.append(condition)
                yield os.path.realpath(file.rpartition(":")[0]), condition

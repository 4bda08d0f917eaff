"""Results of the playbooks' tasks, returned by the functions that the action plugins call."""

from collections.abc import Iterable
from typing import TypedDict

from gpustack.base.findings import Finding, Severity, errors
from gpustack.base.text import LAYOUT, printable, printable_data


class TaskResult(TypedDict, total=False):
    """The keys of a task's result; Ansible prints all of them if the task failed.

    ``text`` is for the operator and may be empty; ``details`` replaces it in a verbose run; ``findings`` belong to a
    failed task.
    """

    failed: bool
    skipped: bool
    changed: bool
    text: str
    details: str
    msg: str
    findings: list[dict[str, str]]
    warnings: list[str]


def failure(summary: str, text: str, findings: Iterable[Finding]) -> TaskResult:
    """A failed task. Its message lists the errors in one line each, since ``text`` has all findings."""
    listed = list(findings)
    blockers = [f"{f.code} {f.place}: {f.message}" for f in errors(listed)]
    return {
        "failed": True,
        "text": printable(text, keep=LAYOUT),
        "msg": printable("\n".join([f"{summary}:", *blockers])),
        "findings": printable_data([f.to_dict() for f in listed]),
    }


def reported(findings: Iterable[Finding]) -> TaskResult:
    """A task whose text is its findings, most severe first; it fails if one of them is an error."""
    shown = [f for f in findings if f.severity is not Severity.INFO]
    text = printable("\n".join(str(f) for f in sorted(shown, key=lambda f: (-f.severity.rank, f.code))))
    return {"text": text, "failed": True, "msg": text} if errors(shown) else {"text": text}

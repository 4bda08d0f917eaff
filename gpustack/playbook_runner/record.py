"""What became of each host, out of the events that a run tells."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpustack.operations import show_counts

_PLANS = ("gpustack_plan", "gpustack_undo", "gpustack_service")
_VERIFIES = ("gpustack_verify",)
_READS = ("gpustack_facts",)


class Phase(enum.StrEnum):
    """What the variable ``gpustack_phase`` of a play or a task says."""

    PLAN = "plan"
    """A play that changes nothing."""
    REBOOT = "reboot"
    """A task that reboots the host."""
    END = "end"
    """The task that fails for an earlier failure of its host, once the host's batch is back."""


class RunOutcome(enum.StrEnum):
    """How it ended for a host."""

    DONE = "done"
    """Everything that was to be done is done."""
    NOTHING = "nothing to do"
    """It was right already."""
    NOT_BEGUN = "not begun"
    """The run ended before its turn came."""
    UNREACHABLE = "unreachable"
    """It could not be reached or read; nothing was changed in this run, or the connection was lost."""
    REFUSED = "refused"
    """An error finding stands against its plan; nothing was changed."""
    NOT_READY = "not ready"
    """Its verification found errors."""
    FAILED = "failed"
    """A change could not be carried out."""


@dataclass(kw_only=True)
class HostRecord:
    """One host, as far as the run has told.

    :ivar task: what is being done there.
    :ivar begun: whether more than planning was begun there.
    :ivar text: the last plan or verification that was shown, for people.
    :ivar todo: whether the plan has anything to do.
    :ivar reboot: why the plan needs a reboot.
    :ivar details: the last verification with every check, for people.
    :ivar checked: whether the run only looks (``--check``).
    :ivar changed: whether something was changed, or would be.
    :ivar planned: how many operations of each kind the plan has.
    :ivar done: how many of them were carried out.
    :ivar findings: those that stand against the host.
    :ivar failure: what the last failure was, until the end of the host's turn repeats it.
    :ivar malformed: why the host's answers can't be trusted.
    """

    host: str
    task: str = ""
    begun: bool = False
    text: str = ""
    todo: bool = False
    reboot: tuple[str, ...] = ()
    details: str = ""
    checked: bool = False
    changed: bool = False
    planned: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    rebooted: bool = False
    verified: bool = False
    outcome: RunOutcome | None = None
    problem: str = ""
    findings: tuple[Mapping[str, str], ...] = ()
    failure: tuple[RunOutcome, str, tuple[Mapping[str, str], ...]] | None = None
    malformed: str = ""

    @property
    def operations(self) -> dict[str, int]:
        """How many operations were carried out; those of the plan, as long as nothing is carried out."""
        return self.planned if self.checked or not self.begun else self.done

    def notes(self) -> list[str]:
        """What is worth reporting beside the outcome."""
        if self.problem:
            return [self.problem.strip().partition("\n")[0].rstrip(":")]
        reboot = ["rebooted"] if self.rebooted else ["needs a reboot"] if self.reboot else []
        kinds = {**self.operations, "reboot": 0}
        return [*show_counts(kinds), *reboot, *(["verified"] if self.verified else [])]

    def to_dict(self) -> dict[str, object]:
        """The record as plain data."""
        return {
            "host": self.host,
            "outcome": str(self.outcome or "planned"),
            "changed": self.changed,
            "operations": dict(self.operations),
            "rebooted": self.rebooted,
            "verified": self.verified,
            "reboot": [] if self.rebooted else list(self.reboot),
            "problem": self.problem,
            "findings": [dict(finding) for finding in self.findings],
        }


@dataclass(kw_only=True)
class Record:
    """A run, as far as it has told.

    :param checked: whether the run only looks (``--check``): what it calls changed is then what would be.
    :ivar ended: whether it came to its end, with totals.
    :ivar planning: whether the play that is under way only plans.
    :ivar active: the hosts of the batch that is under way.
    """

    checked: bool = False
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    ended: bool = False
    no_hosts: bool = False
    planning: bool = False
    active: dict[str, None] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> tuple[str, ...]:
        """Take in one event; → the hosts whose turn is over with it. A malformed one is the failure of its host."""
        try:
            return self._take(event)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            host = self._host(str(event.get("host", "?")))
            host.malformed = (
                f"{event.get('task', 'a task')}: the host's answer is malformed; check the host before you trust it"
            )
            host.outcome, host.problem, host.findings = RunOutcome.FAILED, host.malformed, ()
            return ()

    def _take(self, event: Mapping[str, Any]) -> tuple[str, ...]:
        match event.get("event"):
            case "start":
                host = self._host(event["host"])
                host.task = event["task"]
                host.begun = host.begun or not self.planning
            case "task":
                self._task(self._host(event["host"]), event)
            case "play":
                self.planning = event["phase"] == Phase.PLAN
                return self._batch_over()
            case "no hosts":
                self.no_hosts = True
            case "end":
                self.ended = True
                over = self._batch_over()
                for name, totals in event["hosts"].items():
                    self._total(self._host(name), totals)
                return over
        return ()

    def _host(self, name: str) -> HostRecord:
        self.active[name] = None
        return self.hosts.setdefault(name, HostRecord(host=name, checked=self.checked))

    def _batch_over(self) -> tuple[str, ...]:
        over = tuple(self.active)
        self.active.clear()
        return over

    def _task(self, host: HostRecord, event: Mapping[str, Any]) -> None:
        result, action = event["result"], event["action"]
        for kind, number in event["done"].items():
            host.done[kind] = host.done.get(kind, 0) + int(number)
        if event["state"] == "ok":
            self._well(host, event, result, action)
            return
        if event["ignored"]:
            return
        if event["phase"] == Phase.END and host.failure is not None:
            host.outcome, host.problem, host.findings = host.failure
            return
        host.findings = tuple({str(key): str(value) for key, value in f.items()} for f in result.get("findings") or ())
        host.problem = _problem(event, result)
        if event["state"] == "unreachable" or action in _READS:
            host.outcome = RunOutcome.UNREACHABLE
        elif action in _PLANS and host.findings and not host.changed:
            host.outcome = RunOutcome.REFUSED
        elif action in (*_VERIFIES, "gpustack_undo") and host.findings:
            host.outcome = RunOutcome.NOT_READY
        else:
            host.outcome = RunOutcome.FAILED
        host.failure = host.outcome, host.problem, host.findings

    def _well(self, host: HostRecord, event: Mapping[str, Any], result: Mapping[str, Any], action: str) -> None:
        # A failure that a rescue has dealt with is followed by tasks that go well.
        host.outcome, host.problem, host.findings = None, "", ()
        if event["changed"]:
            host.changed = True
            host.rebooted = host.rebooted or (event["phase"] == Phase.REBOOT and not self.checked)
        if result.get("text"):
            # What Nova needs is told beside what the host needs.
            host.text = f"{host.text}\n\n{result['text']}" if action == "gpustack_service" else str(result["text"])
            host.details = str(result.get("details") or "")
        if "counts" in result:
            host.planned = {str(kind): int(number) for kind, number in result["counts"].items()}
        if "todo" in result and not host.changed:
            host.todo = host.todo or bool(result["todo"])
        if "reboot" in result and "todo" in result:
            host.reboot = tuple(str(why) for why in result["reboot"])
        if result.get("verification") and action in _VERIFIES:
            host.verified = True

    def _total(self, host: HostRecord, totals: Mapping[str, int]) -> None:
        """Ansible's own count has the last word, but for a host whose answers are malformed."""
        if host.malformed:
            host.outcome, host.problem = RunOutcome.FAILED, host.malformed
        elif totals.get("unreachable"):
            host.outcome = RunOutcome.UNREACHABLE
        elif totals.get("failures"):
            host.outcome = host.outcome or RunOutcome.FAILED
            host.problem = host.problem or "a task has failed, and its result could not be read: see the log"
        elif host.outcome is None or totals.get("rescued"):
            host.outcome = None if self.planning and host.todo else _good(host)


def _good(host: HostRecord) -> RunOutcome:
    if host.todo and not host.begun:
        return RunOutcome.NOT_BEGUN
    return RunOutcome.DONE if host.changed or host.verified else RunOutcome.NOTHING


def _problem(event: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What went wrong on a host: the message, and what a command said last."""
    items: Sequence[Mapping[str, Any]] = result.get("items") or (result,)
    lines = []
    for item in items:
        lines.append(str(item.get("msg") or "failed"))
        if item.get("cmd"):
            command = item["cmd"]
            lines.append(f"  command: {' '.join(command) if isinstance(command, list) else command}")
        for key in ("stderr", "module_stderr", "stdout"):
            if item.get(key):
                lines += [f"  {line}" for line in str(item[key]).strip().splitlines()[-6:]]
                break
    text = "\n".join(lines)
    return text if result.get("findings") or event["state"] == "unreachable" else f"{event['task']}: {text}"

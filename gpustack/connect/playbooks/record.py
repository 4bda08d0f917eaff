"""The state of each host, derived from the events of a run."""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpustack.base.operations import show_counts
from gpustack.base.text import printable

_PLANS = ("gpustack_plan", "gpustack_undo", "gpustack_service")
_VERIFIES = ("gpustack_verify", "gpustack_undo")
_READS = ("gpustack_facts",)
_OWN_TEXT = re.compile(r"gpustack_(?!(bind|facts|files|image|reboot_host|run)$)")
"""Actions of the controller. Other messages may be a host's: further lines would look like gpustack's at the left."""
NO_ROOT = "no root rights"
"""The start of the problem of a host on which sudo refuses."""
# sudo's own words, or those of Ansible's SSH plugin. Warnings of sudo ("unable to resolve host") are no reason.
_SUDO_REFUSES = re.compile(
    r"\bsudo: (?:a (?:password|terminal) is required.*|.*not found)|(?:Missing|Incorrect) sudo password"
    r"|Sorry, try again"
    r"|(?<!\S)\S+ is not (?:in the sudoers file|allowed to (?:run sudo|execute)).*"
)
_MOST = 8 << 10
"""The characters of an answer in which sudo's words are looked for: they are its first."""


class Phase(enum.StrEnum):
    """Values of the variable ``gpustack_phase`` of a play or task."""

    PLAN = "plan"
    """A play that changes nothing."""
    REBOOT = "reboot"
    """A task that reboots the host."""
    END = "end"
    """The task that fails because of an earlier failure of its host, after the host's batch is restored."""


class RunOutcome(enum.StrEnum):
    """The final state of a host."""

    DONE = "done"
    """All planned changes are made, or the verification has succeeded."""
    NOTHING = "nothing to do"
    """The host needs no change."""
    NOT_BEGUN = "not begun"
    """The run ended before the host's turn."""
    UNREACHABLE = "unreachable"
    """The host was unreachable, or its facts could not be read."""
    REFUSED = "refused"
    """Its plan is blocked by an error; nothing was changed."""
    NOT_READY = "not ready"
    """Its verification found errors."""
    FAILED = "failed"
    """A change failed."""


@dataclass(kw_only=True)
class HostRecord:
    """The state of one host during a run.

    :ivar called: its name in the spec (``gpustack_hostname``); empty until its options are resolved.
    :ivar task: the current task.
    :ivar begun: whether anything beyond planning was started.
    :ivar text: the last plan or verification that was shown.
    :ivar todo: whether the plan contains changes.
    :ivar reboot: the reasons why the plan needs a reboot.
    :ivar may_reboot: whether the run may reboot it (``gpustack_reboot``, of whatever source).
    :ivar details: the last verification with all checks.
    :ivar checked: whether this is a dry run (``--check``).
    :ivar changed: whether something was changed; in a dry run, whether something would be.
    :ivar planned: the number of planned operations by kind.
    :ivar done: the number of completed operations by kind.
    :ivar findings: the findings of the last failed task.
    :ivar failure: the last failure, which the host's last task repeats (:attr:`Phase.END`).
    :ivar malformed: the reason why the host's results can't be trusted; empty if they can.
    """

    host: str
    called: str = ""
    task: str = ""
    begun: bool = False
    text: str = ""
    todo: bool = False
    reboot: tuple[str, ...] = ()
    may_reboot: bool = False
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
        """The number of completed operations by kind; those of the plan until the first change."""
        return self.planned if self.checked or not self.begun else self.done

    def notes(self) -> list[str]:
        """Details to print after the outcome."""
        codes = {f["code"] for f in self.findings if f.get("severity") == "error" and "code" in f}
        if self.problem:
            return sorted(codes) or [self.problem.strip().partition("\n")[0].rstrip(":")]
        reboot = ["rebooted"] if self.rebooted else ["needs a reboot"] if self.reboot else []
        kinds = {**self.operations, "reboot": 0}
        return [*show_counts(kinds), *reboot, *(["verified"] if self.verified else [])]

    def to_dict(self) -> dict[str, object]:
        """The record as plain data for JSON."""
        return {
            **{name: getattr(self, name) for name in ("host", "changed", "rebooted", "verified", "problem")},
            "outcome": str(self.outcome or "planned"),
            "operations": dict(self.operations),
            "reboot": [] if self.rebooted else list(self.reboot),
            "findings": [dict(finding) for finding in self.findings],
        }


@dataclass(kw_only=True)
class Record:
    """The state of a run.

    :param checked: whether it is a dry run (``--check``): "changed" then means "would change".
    :ivar ended: whether Ansible reported its totals.
    :ivar no_hosts: whether Ansible reported that no host matched.
    :ivar planning: whether the current play only plans.
    :ivar active: the hosts of the current batch.
    :ivar specs: the paths of the specs that the tasks read, by their SHA-256.
    """

    checked: bool = False
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    ended: bool = False
    no_hosts: bool = False
    planning: bool = False
    active: dict[str, None] = field(default_factory=dict)
    specs: dict[str, str] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> tuple[str, ...]:
        """Apply one event and return the hosts whose turn ended with it.

        A malformed event marks its host as failed.
        """
        try:
            return self._take(event)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            host = self._host(str(event.get("host", "?")))
            task = event.get("task", "a task")
            host.malformed = f"{task}: the host's answer is malformed; check the host before you trust it"
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
        if spec := result.get("spec_seen"):
            self.specs[str(spec["sha256"])] = str(spec["path"])
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
        elif action in _VERIFIES and host.findings:
            host.outcome = RunOutcome.NOT_READY
        else:
            host.outcome = RunOutcome.FAILED
        host.failure = host.outcome, host.problem, host.findings

    def _well(self, host: HostRecord, event: Mapping[str, Any], result: Mapping[str, Any], action: str) -> None:
        # Tasks after a rescued failure succeed, and clear it.
        host.outcome, host.problem, host.findings = None, "", ()
        if event["changed"]:
            host.changed = True
            host.rebooted = host.rebooted or (event["phase"] == Phase.REBOOT and not self.checked)
        if result.get("text"):
            # The plan for Nova's services is shown below the plan of the host.
            host.text = f"{host.text}\n\n{result['text']}" if action == "gpustack_service" else str(result["text"])
            host.details = str(result.get("details") or "")
        if "counts" in result:
            host.planned = {str(kind): int(number) for kind, number in result["counts"].items()}
        if "todo" in result and not host.changed:
            host.todo = host.todo or bool(result["todo"])
        if action == "gpustack_options":
            host.called, host.may_reboot = str(result.get("hostname") or ""), result.get("reboot") is True
        elif "reboot" in result and "todo" in result:
            host.reboot = tuple(str(why) for why in result["reboot"])
        if result.get("verification") and action in _VERIFIES:
            host.verified = True

    def _total(self, host: HostRecord, totals: Mapping[str, int]) -> None:
        """Ansible's totals decide, except for a host with malformed results."""
        if host.malformed:
            host.outcome, host.problem = RunOutcome.FAILED, host.malformed
        elif totals.get("unreachable"):
            host.outcome = RunOutcome.UNREACHABLE
        elif totals.get("failures"):
            host.outcome = host.outcome or RunOutcome.FAILED
            host.problem = host.problem or "a task has failed, and its result could not be read: see the log"
        elif host.outcome is None or totals.get("rescued"):
            host.outcome = None if self.planning and host.todo else good(host)


def good(host: HostRecord) -> RunOutcome:
    """The outcome of a host without a problem."""
    if host.todo and not host.begun:
        return RunOutcome.NOT_BEGUN
    return RunOutcome.DONE if host.changed or host.verified else RunOutcome.NOTHING


def _problem(event: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The problem on a host: the reason of sudo, or the message, the command and the end of its output."""
    if refusal := _SUDO_REFUSES.search(
        "\n".join(str(result.get(key) or "")[:_MOST] for key in ("msg", "module_stderr"))
    ):
        return f"{NO_ROOT}: {refusal[0].strip()}"
    items: Sequence[Mapping[str, Any]] = result.get("items") or (result,)
    is_own = _OWN_TEXT.match(event["action"]) and event["state"] != "unreachable"
    lines = []
    for item in items:
        lines.append(("\n" if is_own else "\n    ").join(str(item.get("msg") or "failed").splitlines()))
        if item.get("cmd"):
            command = " ".join(item["cmd"]) if isinstance(item["cmd"], list) else str(item["cmd"])
            lines.append(f"  command: {printable(command, keep='')}")
        output = next((item[key] for key in ("stderr", "module_stderr", "stdout") if item.get(key)), "")
        lines += [f"    {line}" for line in str(output).strip().splitlines()[-6:]]
    text = "\n".join(lines)
    return text if result.get("findings") or event["state"] == "unreachable" else f"{event['task']}: {text}"

"""What became of each host, out of events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import ApplyError, HostError, PlanError, VerifyError
from gpustack.connect.playbooks.inventory import inventory_of, inventory_of_this_machine
from gpustack.connect.playbooks.record import HostRecord, Record, RunOutcome
from gpustack.connect.playbooks.show import line, problems, verdict

ERROR = {"severity": "error", "code": "GPU013", "place": "a", "message": "m", "remedy": "fix it"}


def record_of(*events: dict[str, Any]) -> Record:
    record = Record()
    for event in events:
        record.take(event)
    return record


def task(state: str = "ok", action: str = "command", name: str = "Run", **more: Any) -> dict[str, Any]:
    entry = {"event": "task", "host": "a", "task": name, "action": action, "phase": "", "state": state}
    return {**entry, "changed": False, "done": {}, "ignored": False, "result": {}, **more}


def end(**totals: int) -> dict[str, Any]:
    return {"event": "end", "hosts": {"a": totals}}


VERIFIED = task(action="gpustack_verify", result={"verification": {"x": 1}})


@pytest.mark.parametrize(
    ("events", "outcome", "error"),
    [
        ([task(changed=True)], RunOutcome.DONE, None),
        ([task()], RunOutcome.NOTHING, None),
        ([task("failed", "gpustack_facts")], RunOutcome.UNREACHABLE, HostError),
        ([task("unreachable")], RunOutcome.UNREACHABLE, HostError),
        ([task("failed", "gpustack_plan", result={"findings": [ERROR]})], RunOutcome.REFUSED, PlanError),
        ([task("failed", "gpustack_verify", result={"findings": [ERROR]})], RunOutcome.NOT_READY, VerifyError),
        ([task("failed", "gpustack_plan")], RunOutcome.FAILED, ApplyError),
        ([task("failed")], RunOutcome.FAILED, ApplyError),
        ([task("failed", ignored=True)], RunOutcome.NOTHING, None),
    ],
)
def test_outcomes(events: list[dict[str, Any]], outcome: RunOutcome, error: type | None) -> None:
    bad = outcome not in (RunOutcome.DONE, RunOutcome.NOTHING)
    record = record_of(*events, end(failures=int(bad and outcome is not RunOutcome.UNREACHABLE)))
    host = record.hosts["a"]
    assert host.outcome is outcome
    assert type(verdict([host], "log")) is (error or type(None))


def test_a_failure_that_was_rescued_is_none() -> None:
    record = record_of(task("failed"), task(changed=True), end(failures=0, rescued=1))
    assert record.hosts["a"].outcome is RunOutcome.DONE


def test_a_failure_that_ends_the_turn_of_its_host_later_is_reported_unchanged() -> None:
    failed = task("failed", "gpustack_verify", result={"findings": [ERROR], "msg": "a is not ready:"})
    end_of_turn = task("failed", "fail", phase="end", result={"msg": "see the report above"})
    record = record_of(failed, task(changed=True), end_of_turn, end(failures=1, rescued=1))
    host = record.hosts["a"]
    assert (host.outcome, host.problem, host.findings) == (RunOutcome.NOT_READY, "a is not ready:", (ERROR,))


def test_errors_are_named_by_their_codes_in_the_summary() -> None:
    failed = task("failed", "gpustack_verify", result={"findings": [ERROR], "msg": "a is not ready:\nGPU013 a: m"})
    host = record_of(failed, end(failures=1)).hosts["a"]
    assert line(host) == "a: not ready (GPU013)"
    assert problems(host) == "a: a is not ready:\nGPU013 a: m\n  → fix it"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "Premature end of stream waiting for become success.\n>>> Standard Error\nsudo: a password is required",
            "sudo: a password is required",
        ),
        ("Task failed: Missing sudo password", "Missing sudo password"),
        (
            "Duplicate become password prompt encountered waiting for become success\nSorry, try again.",
            "Sorry, try again",
        ),
        ("ops is not in the sudoers file.", "ops is not in the sudoers file."),
        ("/bin/sh: 1: sudo: not found\n", "sudo: not found"),
    ],
)
def test_refusals_of_sudo_have_a_remedy(message: str, reason: str) -> None:
    host = record_of(task("failed", "gpustack_facts", result={"msg": message}), end(failures=1)).hosts["a"]
    assert line(host) == f"a: unreachable (no root rights: {reason})"
    assert "-K" in problems(host)


def test_a_warning_of_sudo_is_no_refusal() -> None:
    result = {"msg": "no space left on device", "module_stderr": "sudo: unable to resolve host a: Name not known"}
    host = record_of(task("failed", "gpustack_facts", result=result), end(failures=1)).hosts["a"]
    assert host.problem.startswith("Run: no space left on device")


def test_a_host_whose_turn_did_not_come() -> None:
    plan = task(action="gpustack_plan", result={"todo": True, "reboot": ["why"], "text": "a: …"})
    record = record_of({"event": "play", "phase": "plan"}, plan, {"event": "play", "phase": ""}, end())
    assert record.hosts["a"].outcome is RunOutcome.NOT_BEGUN
    assert isinstance(verdict([record.hosts["a"]], "log"), ApplyError)


def test_the_gravest_decides_the_exit_code() -> None:
    records = [HostRecord(host=str(outcome), outcome=outcome) for outcome in RunOutcome]
    error = verdict(records, "the.log")
    assert isinstance(error, ApplyError)
    assert "1 of 7 hosts failed: failed" in str(error)
    assert "the.log" in str(error)


def test_one_line_a_host() -> None:
    record = record_of(
        {"event": "start", "host": "a", "task": "Write"},
        task(changed=True, done={"file": 2}),
        task(changed=True, done={"command": 1}),
        task(changed=True, done={"command": 1}),
        task(changed=True, phase="reboot"),
        task(action="gpustack_verify", result={"verification": {"x": 1}}),
        end(),
    )
    assert line(record.hosts["a"]) == "a: done (2 files, 2 commands, rebooted, verified)"


def test_dry_runs_count_the_operations_of_the_plan() -> None:
    record = Record(checked=True)
    plan = {"todo": True, "reboot": ["why"], "text": "…", "counts": {"file": 4, "command": 3, "reboot": 1}}
    start = {"event": "start", "host": "a", "task": "Plan"}
    for event in (start, task(action="gpustack_plan", result=plan), task(changed=True, done={"file": 1}), end()):
        record.take(event)
    assert line(record.hosts["a"], checked=True) == "a: would change (4 files, 3 commands, needs a reboot)"


def test_a_failed_loop_names_its_item() -> None:
    items = [{"msg": "non-zero return code", "cmd": ["update-grub"], "stderr": "no space left"}]
    host = record_of(task("failed", name="Run the commands", result={"msg": "One or more", "items": items})).hosts["a"]
    assert host.problem == "Run the commands: non-zero return code\n  command: update-grub\n    no space left"


@pytest.mark.parametrize("state", ["failed", "unreachable"])
@pytest.mark.parametrize("action", ["gpustack_facts", "gpustack_run", "command", "fail"])
@pytest.mark.parametrize("key", ["msg", "cmd", "stderr", "stdout"])
def test_the_text_of_a_host_forges_no_line(key: str, action: str, state: str) -> None:
    forged = ("ERROR GPU001 b: no", "b: done", "  → run `sh`", "→ run `sh`")
    text = "\n".join(("no", *forged, "x"))
    for result in ({key: text}, {"items": [{key: text}]}):
        host = record_of(task(state, action, result=result), end(failures=1)).hosts["a"]
        shown = problems(host).splitlines()
        assert len(shown) > 1 or key == "msg"
        assert [line for line in shown[1:] if not line.startswith(("    ", "  command: "))] == []


def test_an_error_of_gpustack_keeps_its_remedy() -> None:
    failed = task("failed", "gpustack_service", result={"msg": "can't sign in: no answer\n  → check auth_url"})
    host = record_of(failed, end(failures=1)).hosts["a"]
    assert problems(host) == "a: Run: can't sign in: no answer\n  → check auth_url"
    assert problems(host).count("→") == 1


def test_an_inventory_runs_nothing() -> None:
    """Names are keys of JSON, so nothing in them is a template or another host."""
    entries = json.loads(inventory_of(["root@gpu1", "gpu2"]))["all"]["hosts"]
    assert entries == {"gpu1": {"ansible_user": "root"}, "gpu2": {}}


def test_a_space_in_the_path_of_python_is_kept_from_ansible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ansible-core 2.16 splits the interpreter at spaces."""
    python = tmp_path / "my sources" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    (variables,) = json.loads(inventory_of_this_machine())["all"]["hosts"].values()
    subprocess.run([*variables["ansible_python_interpreter"].split(), "-c", ""], check=True)


def test_what_nova_needs_is_shown_beside_the_plan() -> None:
    record = record_of(
        {"event": "play", "phase": "plan"},
        task(action="gpustack_plan", result={"todo": False, "reboot": [], "text": "the plan"}),
        task(action="gpustack_service", result={"todo": True, "text": "what was left", "service": {}}),
        end(),
    )
    host = record.hosts["a"]
    assert host.text == "the plan\n\nwhat was left"
    assert host.todo, "a host with nothing else to do has its turn when an earlier run has left something"
    refused = record_of(task("failed", "gpustack_service", result={"findings": [ERROR]}), end(failures=1))
    assert refused.hosts["a"].outcome is RunOutcome.REFUSED


@pytest.mark.parametrize(
    "event",
    [
        task(action="gpustack_plan", result=None),
        task(action="gpustack_plan", result={"todo": True, "reboot": 5}),
        task("failed", action="gpustack_plan", result={"findings": 5}),
        task("failed", result={"items": 5}),
        task("failed", result={"items": [5]}),
        task("failed", result={"cmd": [5]}),
        task("failed", result=[]),
        {"event": "task", "host": "a"},
    ],
)
def test_a_malformed_event_is_its_hosts_failure(event: dict[str, Any]) -> None:
    record = record_of(task(changed=True), event, task(host="b"), task(), end(ok=3))
    assert (record.hosts["a"].outcome, record.hosts["b"].problem) == (RunOutcome.FAILED, "")
    assert "malformed" in record.hosts["a"].problem
    assert line(record.hosts["a"]).startswith("a: failed")


def test_only_a_verification_verifies() -> None:
    answer = {"verification": {"ready": True}}
    assert not record_of(task(action="gpustack_facts", result=answer), end()).hosts["a"].verified

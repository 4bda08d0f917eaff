"""Attempts to get a device freed without the answer of every host whose device it is."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml

from gpustack.novadb.view import HostState
from gpustack.repair import permission, rules
from gpustack.repair.evidence import interrupted
from gpustack.repair.hypervisor import Usage
from gpustack.repair.repair import Change
from gpustack.repair.verdict import Repair, Status, Verdict, Waiting
from support import neighbourhood

UP, DOWN = "service: {seen: 5}", "service: {seen: 3600}"
STOPPED = "service: {seen: 300}\nstopped: [gpu1]"
ROW = "rows: [{status: allocated, owner: vm, request: old}]"
B = f"{ROW}\nowners: {{vm: {{moves: [{{status: error, from: gpu2, to: gpu1}}]}}}}"
F = """
rows: [{status: allocated, owner: vm, request: r1}, {status: allocated, owner: vm, request: old}]
owners: {vm: {host: gpu1}}
"""
J = "rows: [{status: available, owner: vm}]\nowners: {vm: {absent: true}}"
D = "rows: [{status: allocated, owner: vm, deleted: 1}]\nowners: {vm: }"
ERROR_LIVE = """
rows: [{status: allocated}, {status: allocated, owner: vm, request: r1}]
owners: {vm: {host: gpu1, moves: [{status: error, type: live-migration}]}}
"""
LACKING = "owners: {vm: , other: {host: gpu1}}"
NO_SERVICE = "service: null\nstopped: [gpu1]"
GHOST_BESIDE_LACKING = "owners: {vm: {absent: true}, other: {host: gpu1}}"
GPUS = {f"0000:8{number}:00.0": "10de:11b4" for number in (1, 2, 3)}
COMPLETE = Usage(functions=GPUS)
# A power cut of the source in the middle of the copy, after which its nova-compute started again.
CUT = f"stuck_after: 3600\n{ROW}\nowners: {{vm: {{moves: [{{status: migrating, from: gpu2, to: gpu1}}]}}}}"
STARTED = Usage(functions=GPUS, age=timedelta(seconds=5))


def judged(case: str, klass: str) -> Verdict:
    data: dict[str, Any] = yaml.safe_load(case)
    (verdict,) = (v for v in rules.judge(neighbourhood.view(data), neighbourhood.clock(data)) if v.klass == klass)
    assert verdict.status is Status.STALE, verdict.because
    return verdict


def uses(address: str = "0000:81:00.0", owner: str = "vm", gap: str = "") -> Usage:
    return Usage(users={address: frozenset({owner})}, functions=GPUS, gap=gap)


@pytest.mark.parametrize(
    ("case", "klass", "answers", "status"),
    [
        # Both ends of a migration must answer, wherever the row is.
        (f"{UP}\n{B}", "B", {"gpu1": COMPLETE, "gpu2": COMPLETE}, "stale"),
        (f"{UP}\n{B}", "B", {"gpu1": COMPLETE}, "undecided"),
        (f"{UP}\n{B}", "B", {"gpu2": COMPLETE}, "undecided"),
        (f"{UP}\n{B}", "B", {"gpu1": Usage(gap="no way"), "gpu2": COMPLETE}, "undecided"),
        (f"{DOWN}\n{B}", "B", {"gpu1": Usage(gap="no way"), "gpu2": COMPLETE}, "undecided"),
        # In use is believed of an incomplete answer, of any user, at any address of an instance that is not there.
        (f"{UP}\n{B}", "B", {"gpu1": uses(gap="not root"), "gpu2": COMPLETE}, "report"),
        (f"{UP}\n{B}", "B", {"gpu1": uses(owner=""), "gpu2": COMPLETE}, "report"),
        (f"{UP}\n{B}", "B", {"gpu1": uses("0000:99:00.0"), "gpu2": COMPLETE}, "report"),
        (f"{UP}\n{B}", "B", {"gpu1": COMPLETE, "gpu2": uses()}, "stale"),  # the instance is placed there
        (f"{DOWN}\n{ROW}\nowners: {{vm: }}", "A", {"gpu1": uses(gap="not root")}, "report"),
        # Not in use is believed only of a machine that proves to be the host.
        (f"{UP}\n{B}", "B", {"gpu1": Usage(), "gpu2": COMPLETE}, "undecided"),
        (f"{UP}\n{B}", "B", {"gpu1": Usage(functions={"0000:81:00.0": "10de:20b5"}), "gpu2": COMPLETE}, "undecided"),
        (f"{STOPPED}\n{F}", "F", {"gpu1": Usage()}, "undecided"),
        (f"{STOPPED}\n{J}", "J", {"gpu1": Usage(functions={"0000:82:00.0": "10de:11b4"})}, "undecided"),
        # The operator's word replaces what is missing, not what is in use, and not for another host.
        (f"{DOWN}\n{B}", "B", {"gpu1": Usage(gap="no way", gone=True), "gpu2": COMPLETE}, "stale"),
        (f"{DOWN}\n{B}", "B", {"gpu1": Usage(gap="no way", gone=True), "gpu2": Usage(gap="no way")}, "undecided"),
        (f"{UP}\n{B}", "B", {"gpu1": Usage(gap="no way", gone=True), "gpu2": COMPLETE}, "undecided"),
        (
            f"{DOWN}\n{B}",
            "B",
            {"gpu1": dataclasses.replace(uses(gap="no way"), gone=True), "gpu2": COMPLETE},
            "report",
        ),
        (f"{STOPPED}\n{F}", "F", {"gpu1": Usage(gap="no way", gone=True)}, "undecided"),
        # Where nova-compute is started, each device in use must be its user's by a row that stays.
        (f"{STOPPED}\n{F}", "F", {"gpu1": uses("0000:81:00.0")}, "stale"),
        (
            f"{STOPPED}\n{F}",
            "F",
            {"gpu1": Usage(users={"0000:81:00.0": frozenset({"vm", ""})}, functions=GPUS)},
            "stale",
        ),
        (f"{STOPPED}\n{F}", "F", {"gpu1": uses("0000:81:00.0", "other")}, "report"),
        (f"{STOPPED}\n{F}", "F", {"gpu1": uses("0000:82:00.0")}, "report"),
        (f"{STOPPED}\n{F}", "F", {"gpu1": uses("0000:83:00.0", "other")}, "report"),
        (f"{STOPPED}\n{F}", "F", {"gpu1": Usage(gap="no way")}, "undecided"),
        (f"{UP}\nrows: [{{status: allocated}}]", "J", {"gpu1": uses()}, "report"),
        (f"{UP}\nrows: [{{status: allocated}}]", "J", {"gpu1": Usage(gap="no way")}, "undecided"),
        (f"{UP}\nrows: [{{status: allocated}}]", "J", {"gpu1": COMPLETE}, "stale"),
        (
            f"{UP}\nrows: [{{status: allocated}}]",
            "J",
            {"gpu1": Usage(functions={"0000:81:00.0": "8086:1"})},
            "undecided",
        ),
        # A device that Nova does not manage may be in use.
        (
            f"{STOPPED}\n{F}",
            "F",
            {"gpu1": Usage(users={"0000:01:00.0": frozenset({"x"})}, functions={**GPUS, "0000:01:00.0": "8086:1572"})},
            "stale",
        ),
        (f"{STOPPED}\n{F}", "F", {"gpu1": uses("0000:01:00.0", "x")}, "report"),  # nothing shows what it is
        # A nova-compute that runs is not stopped, whatever its service and the operator say.
        (f"{STOPPED}\n{F}", "F", {"gpu1": Usage(functions=GPUS, nova_compute=True)}, "report"),
        # It runs, as it should, on a host that need not be stopped; no user is no use.
        (f"{UP}\n{B}", "B", {"gpu1": dataclasses.replace(COMPLETE, nova_compute=True), "gpu2": COMPLETE}, "stale"),
        (
            f"{UP}\n{B}",
            "B",
            {"gpu1": Usage(functions=GPUS, users={"0000:81:00.0": frozenset()}), "gpu2": COMPLETE},
            "stale",
        ),
        # A proof is a proof, also of a host that was declared gone.
        (f"{UP}\n{CUT}", "A", {"gpu1": COMPLETE, "gpu2": STARTED}, "stale"),
        (f"{UP}\n{CUT}", "A", {"gpu1": COMPLETE, "gpu2": COMPLETE}, "undecided"),
        (f"{UP}\n{CUT}", "A", {"gpu1": COMPLETE, "gpu2": dataclasses.replace(STARTED, gone=True)}, "stale"),
        # --gone does not replace the start of a nova-compute that reports; it does replace devices that are not there.
        (f"{UP}\n{CUT}", "A", {"gpu1": COMPLETE, "gpu2": dataclasses.replace(COMPLETE, gone=True)}, "undecided"),
        (f"{UP}\n{B}", "B", {"gpu1": Usage(gone=True), "gpu2": COMPLETE}, "stale"),
        # Another instance's use of another device says nothing, unless nova-compute is started.
        (f"{UP}\n{B}", "B", {"gpu1": uses("0000:83:00.0", "other"), "gpu2": COMPLETE}, "stale"),
        # A soft-deleted row: only its owner's use counts, or an unknown one, for the address may be another's by now.
        (f"{DOWN}\n{D}", "D", {"gpu1": uses(owner="other")}, "stale"),
        (f"{DOWN}\n{D}", "D", {"gpu1": uses(owner="")}, "report"),
        (f"{DOWN}\n{D}", "D", {"gpu1": uses()}, "report"),
        # An instance whose live migration ended in error must run here; an incomplete answer does not show its absence.
        (f"{UP}\n{ERROR_LIVE}", "J", {"gpu1": COMPLETE}, "report"),
        (f"{UP}\n{ERROR_LIVE}", "J", {"gpu1": uses("0000:82:00.0")}, "stale"),
        (f"{UP}\n{ERROR_LIVE}", "J", {"gpu1": Usage(gap="no way")}, "undecided"),
        # The host is down, and its nova-compute does the same when it starts.
        (f"{DOWN}\n{ROW}\nowners: {{vm: }}", "A", {"gpu1": Usage(gap="no way")}, "stale"),
        # Not so if an instance there lacks a device: it may use the one that would be freed.
        (f"{DOWN}\n{ROW}\n{LACKING}", "A", {"gpu1": Usage(gap="no way")}, "undecided"),
        # Not so if it has no service at all: it may run without one.
        (f"{NO_SERVICE}\n{ROW}\nowners: {{vm: }}", "A", {"gpu1": Usage(gap="no way")}, "undecided"),
        (f"{DOWN}\n{ROW}\n{LACKING}", "A", {"gpu1": uses(owner="other")}, "report"),
        (f"{DOWN}\n{ROW}\n{LACKING}", "A", {"gpu1": COMPLETE}, "stale"),
        (f"{DOWN}\n{ROW}\n{GHOST_BESIDE_LACKING}", "E", {"gpu1": Usage(gap="no way")}, "undecided"),
    ],
)
def test_what_an_answer_permits(case: str, klass: str, answers: dict[str, Usage], status: str) -> None:
    settled = permission.settle(judged(case, klass), answers)
    assert settled.status == status, settled.because
    assert (settled.repair is None) == (status != "stale")
    assert settled.stop == (status == "stale" and klass in "FJ" and STOPPED in case)
    if status == "undecided":
        assert "--gone" in settled.advice
    if answers.get("gpu1") == uses(owner=""):
        assert settled.because == "the hypervisor of gpu1 reports 0000:81:00.0 in use by an unknown process"


def test_a_verdict_without_a_repair_needs_no_answer() -> None:
    data: dict[str, Any] = yaml.safe_load(f"{DOWN}\n{ROW}\nowners: {{vm: {{task: migrating}}}}")
    (verdict,) = rules.judge(neighbourhood.view(data), neighbourhood.clock(data))
    assert permission.settle(verdict, {}) == verdict


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (COMPLETE, "restart nova-compute"),
        (Usage(gap="no way"), "do not restart nova-compute: gpu1 could not be asked"),
        (uses(owner="other"), "do not restart nova-compute: 0000:81:00.0 on gpu1 is in use by other"),
    ],
    ids=["complete", "none", "in use"],
)
def test_a_restart_is_advised_only_after_the_host_has_answered(answer: Usage, advice: str) -> None:
    data: dict[str, Any] = yaml.safe_load(f"{UP}\n{ROW}\nowners: {{vm: {{deleted: 7200}}}}")
    (verdict,) = rules.judge(neighbourhood.view(data), neighbourhood.clock(data))
    assert (verdict.klass, verdict.status) == ("R", Status.REPORT)
    settled = permission.settle(verdict, {"gpu1": answer})
    assert settled.status is Status.REPORT
    assert settled.then == ""
    assert advice in settled.advice
    assert ("do not" in settled.advice) == ("do not" in advice)


@pytest.mark.parametrize(
    ("case", "klass", "remedy"),
    [
        (f"{UP}\n{F}", "F", "stop nova-compute on gpu1 first, then add --stopped gpu1"),
        (f"{DOWN}\n{F}", "F", "stop nova-compute on gpu1 first, then add --stopped gpu1"),
        (f"{STOPPED}\n{F}", "F", ""),
        (f"{DOWN}\n{ROW}\nowners: {{vm: }}", "A", ""),
    ],
)
def test_nova_compute_is_stopped_where_a_repair_needs_it(case: str, klass: str, remedy: str) -> None:
    assert permission.unstopped(judged(case, klass)) == remedy


@pytest.mark.parametrize(
    ("case", "answer", "witness"),
    [
        (f"{DOWN}\n{ROW}\nowners: {{vm: }}", COMPLETE, "gpu1: no guest uses a device that may become free"),
        (f"{DOWN}\n{ROW}\nowners: {{vm: }}", Usage(gap="no way"), "gpu1: not asked with success"),
        (f"{DOWN}\n{ROW}\n{LACKING}", Usage(gap="no way", gone=True), "declared gone by the operator"),
        (f"{STOPPED}\n{ROW}\nowners: {{vm: }}", Usage(gap="no way", gone=True), "gpu1: not asked with success"),
    ],
    ids=["complete", "spared", "gone", "spared, and contrary to --gone"],
)
def test_the_proof_is_recorded(case: str, answer: Usage, witness: str) -> None:
    verdict = judged(case, "A")
    (text,) = permission.witnesses(verdict, {"gpu1": answer})
    assert witness in text
    assert permission.settle(verdict, {"gpu1": answer}).evidence == (*verdict.evidence, text)


def test_a_compute_node_without_a_host_is_asked_nothing() -> None:
    """Its record was deleted by hand, or is of a release that wrote no host."""
    verdict = judged("node: {deleted: 7200}\nservice: null\n" + f"{ROW}\nowners: {{vm: }}", "C")
    (question,) = verdict.questions or ()
    lost = replace(verdict, host="", questions=(replace(question, host=""),))
    assert lost.asks == ()
    (text,) = permission.witnesses(lost, {})
    assert text.startswith("no host: not asked with success (the compute node has no host), and no nova-compute reads")


@pytest.mark.parametrize(
    ("functions", "present"),
    [({}, "no such function"), ({"0000:81:00.0": "10de:20b5"}, "10de:20b5 there")],
)
def test_missing_proof_names_the_device_of_the_machine(functions: dict[str, str], present: str) -> None:
    settled = permission.settle(judged(f"{UP}\n{B}", "B"), {"gpu1": Usage(functions=functions), "gpu2": COMPLETE})
    assert f"0000:81:00.0 is 10de:11b4 by its row, and the machine has {present}" in settled.because


def test_only_the_named_host_is_declared_gone() -> None:
    answers = permission.answers(judged(f"{UP}\n{B}", "B"), lambda _host: COMPLETE, gone=["gpu2"])
    assert {host: answer.gone for host, answer in answers.items()} == {"gpu1": False, "gpu2": True}


def test_a_compute_node_that_may_return_with_a_pinned_device_is_asked() -> None:
    """Freed by hand, it would be offered when the host comes back as the same compute node; Nova would keep it."""
    case = f"service: null\nnode: {{deleted: 7200}}\n{ROW}\nowners: {{vm: {{moves: [{{status: error}}]}}}}"
    assert permission.settle(judged(case, "C"), {"gpu1": Usage(gap="no way")}).status is Status.UNDECIDED
    plain = f"service: null\nnode: {{deleted: 7200}}\n{ROW}\nowners: {{vm: }}"
    assert permission.settle(judged(plain, "C"), {"gpu1": Usage(gap="no way")}).status is Status.STALE


@pytest.mark.parametrize("name", ["gpu1", "GPU1.example"])
def test_a_machine_of_another_name_proves_nothing(name: str) -> None:
    """All hosts of a rack have the same devices at the same addresses: DNS, or a jump host, led to another one."""
    at_home, elsewhere = (dataclasses.replace(COMPLETE, names=frozenset({hostname})) for hostname in (name, "gpu9"))
    destination = dataclasses.replace(COMPLETE, names=frozenset({"gpu2"}))
    verdict = judged(f"{UP}\n{B}", "B")
    assert permission.settle(verdict, {"gpu1": at_home, "gpu2": destination}).status is Status.STALE
    for answers in ({"gpu1": elsewhere, "gpu2": destination}, {"gpu1": at_home, "gpu2": elsewhere}):
        settled = permission.settle(verdict, answers)
        assert settled.status is Status.UNDECIDED
        assert "calls itself gpu9" in settled.because
    gone = dataclasses.replace(elsewhere, gone=True)
    assert "contrary to --gone" in permission.settle(verdict, {"gpu1": gone, "gpu2": destination}).because
    restart = judged(f"{UP}\nrows: [{{status: allocated}}]", "J")
    assert permission.settle(restart, {"gpu1": elsewhere}).status is Status.UNDECIDED


def test_each_device_that_a_failed_migration_frees_is_asked_about() -> None:
    """Class E judges row by row, and Nova frees all that the migration holds."""
    rows = "rows: [{status: allocated, owner: vm}, {status: allocated, owner: vm}]"
    case = yaml.safe_load(f"{UP}\n{rows}\nowners: {{vm: {{absent: true, moves: [{{status: error}}]}}}}")
    for verdict in rules.judge(neighbourhood.view(case), neighbourhood.clock(case)):
        for address in ("0000:81:00.0", "0000:82:00.0"):
            assert permission.settle(verdict, {"gpu1": uses(address, ""), "gpu2": COMPLETE}).status is Status.REPORT


def test_a_soft_deleted_row_of_the_other_host_is_not_asked_about() -> None:
    """Nova does not free it: its address may belong to another instance by a row of its own."""
    owner = "{host: gpu3, moves: [{status: error, from: gpu2, to: gpu1}]}"
    data: dict[str, Any] = yaml.safe_load(f"{UP}\n{ROW}\nowners: {{vm: {owner}}}")
    view = neighbourhood.view(data)
    for deleted, status in ((0, Status.REPORT), (9, Status.STALE)):
        row = view.rows[0]._replace(id=9, compute_node_id=2, deleted=deleted)
        moved = dataclasses.replace(view, elsewhere={"vm": (("gpu2", row),)})
        (verdict,) = rules.judge(moved, neighbourhood.clock(data))
        answers = {"gpu1": COMPLETE, "gpu2": uses(owner="other")}
        assert permission.settle(verdict, answers).status is status


def test_relatives_are_asked_about_however_addresses_are_written() -> None:
    case = f"""
{DOWN}
rows:
  - {{status: allocated, owner: vm, type: type-PF, address: "0000:C1:00.0"}}
  - {{status: unavailable, type: type-VF, address: "0000:c1:00.4", parent: "0000:C1:00.0"}}
owners: {{vm: }}
"""
    verdict = judged(case, "A")
    assert permission.settle(verdict, {"gpu1": uses("0000:c1:00.4", "x")}).status is Status.REPORT


RESTARTED = {
    "J": "rows: [{status: allocated}]",
    "K": "rows: [{status: removed}]",
    "P": "rows: [{status: available}]\nnode: {pci_stats: ''}",
    "I": "rows: [{status: available, type: type-PF}, {status: allocated, owner: vm, request: r1, type: type-VF, "
    "parent: '0000:81:00.0'}]\nowners: {vm: {host: gpu1}}",
}


@pytest.mark.parametrize("klass", RESTARTED)
@pytest.mark.parametrize(
    ("more", "because"),
    [
        # Nova frees the device of an owner in capitals, and can't load a row in an unknown status.
        ({"rows": [{"status": "allocated", "owner": "x", "written": "X", "request": "r1"}]}, "can't read it so"),
        ({"rows": [{"status": "free"}]}, "can't read it so"),
        # A live migration whose nova-compute restarts leaves its guest where Nova does not look for it.
        ({"moves": [{"of": "x", "status": "running", "from": "gpu1", "to": "gpu2"}]}, "migration 90 of instance x"),
        ({"moves": [{"of": "y", "status": "queued", "from": "gpu3", "to": "gpu1"}]}, "migration 90 of instance y"),
        ({"owners": {"x": {"host": "gpu1", "task": "rebuilding", "wants": []}}}, "(rebuilding)"),
    ],
)
def test_nova_compute_is_not_restarted_where_that_does_harm(klass: str, more: dict[str, Any], because: str) -> None:
    case = yaml.safe_load(f"{UP}\n{RESTARTED[klass]}")
    before = [v for v in rules.judge(neighbourhood.view(case), neighbourhood.clock(case)) if v.klass == klass]
    assert [v.status for v in before] == [Status.STALE]
    case["rows"] = [*case["rows"], *more.get("rows", [])]
    owners = {"x": {"host": "gpu1", "wants": ["r1"] if "written" in str(more) else []}}
    case["owners"] = {**case.get("owners", {}), **owners, **more.get("owners", {})}
    case["moves"] = more.get("moves", [])
    for verdict in rules.judge(neighbourhood.view(case), neighbourhood.clock(case)):
        assert not verdict.stop
        assert verdict.repair is not Repair.RESTART
        if verdict.klass == klass:
            assert because in verdict.because or verdict.status is Status.PROTECTED


@pytest.mark.parametrize("klass", ["J", "K"])
@pytest.mark.parametrize(
    "more",
    [
        {"moves": [{"of": "x", "status": "finished", "from": "gpu3", "to": "gpu1"}]},  # waits for a confirmation
        {"moves": [{"of": "x", "status": "error", "from": "gpu3", "to": "gpu1"}]},
        {"owners": {"x": {"host": "gpu2", "task": "rebuilding", "wants": []}}},
    ],
)
def test_work_that_a_restart_does_not_interrupt_permits_it(klass: str, more: dict[str, Any]) -> None:
    case = {**yaml.safe_load(f"{UP}\n{RESTARTED[klass]}"), **more}
    verdicts = rules.judge(neighbourhood.view(case), neighbourhood.clock(case))
    assert [(v.status, v.repair) for v in verdicts if v.klass == klass] == [(Status.STALE, Repair.RESTART)]


@pytest.mark.parametrize(
    ("users", "status"),
    [
        ({"0000:82:00.0": frozenset({"vm"})}, Status.STALE),
        ({}, Status.REPORT),
        ({"0000:82:00.0": frozenset({""})}, Status.REPORT),
    ],
)
@pytest.mark.parametrize("host", ["gpu1", "GPU1", "gpu1.example.org"])
def test_an_instance_that_may_run_elsewhere_is_not_started_twice(
    users: dict[str, frozenset[str]], status: Status, host: str
) -> None:
    """Nova placed it back after its live migration, in error. One of its devices in use shows that it runs here."""
    restart = judged(
        f"{UP}\nrows: [{{status: allocated}}, {{status: allocated, owner: vm, request: r1}}, "
        "{status: allocated, owner: vm, request: r2}]\n"
        f"owners: {{vm: {{host: {host}, wants: [r1, r2], moves: "
        "[{status: error, type: live-migration, from: gpu1, to: gpu2}]}}",
        "J",
    )
    assert restart.repair is Repair.RESTART
    settled = permission.settle(restart, {"gpu1": Usage(users=users, functions=GPUS)})
    assert settled.status is status, settled.because
    assert (status is Status.STALE) or "its live migration ended in error" in settled.because


@pytest.mark.parametrize("host", ["gpu1", "GPU1", "gpu1.example.org"])
def test_work_under_another_name_of_the_host_is_work_of_it(host: str) -> None:
    data = yaml.safe_load(f"{ROW}\nowners: {{vm: {{host: {host}, task: rebuilding}}}}")
    assert list(interrupted(neighbourhood.view(data))) == ["instance vm has a task under way (rebuilding)"]


def test_what_nobody_prepared_is_not_repaired() -> None:
    """A new rule, or another caller, can not forget to ask."""
    verdict = dataclasses.replace(judged(f"{DOWN}\n{ROW}\nowners: {{vm: }}", "A"), questions=None)
    assert permission.settle(verdict, {"gpu1": COMPLETE}).status is Status.UNDECIDED


@pytest.mark.parametrize(
    ("seconds", "status"),
    # The migration was written an hour ago. A minute is left to the clocks of the host that wrote it and the database.
    [(3539, Status.STALE), (3540, Status.UNDECIDED), (7200, Status.UNDECIDED), (None, Status.UNDECIDED)],
)
def test_a_lost_move_is_failed_only_if_its_source_is_younger(seconds: int | None, status: Status) -> None:
    """Ages are compared, whatever time it is on the host."""
    moves = "[{status: migrating, from: gpu2, to: gpu1, age: 3600}]"
    verdict = judged(f"stuck_after: 3600\n{UP}\n{ROW}\nowners: {{vm: {{moves: {moves}}}}}", "A")
    source = Usage(functions=GPUS, age=None if seconds is None else timedelta(seconds=seconds))
    assert permission.settle(verdict, {"gpu1": COMPLETE, "gpu2": source}).status is status


WAITING = Waiting(
    instance="vm",
    task="spawning",
    since=datetime(2026, 1, 1),  # noqa: DTZ001
    age=timedelta(hours=2),
    younger=timedelta(hours=1.9),
    hosts=("gpu2",),
    by_compute=True,
    advice="end it",
)


@pytest.mark.parametrize(
    ("usage", "waiting", "status"),
    [
        ({"age": timedelta(hours=1)}, {}, Status.STUCK),
        ({"age": timedelta(hours=1.9)}, {}, Status.PROTECTED),
        ({"age": None}, {}, Status.PROTECTED),
        ({"age": timedelta(hours=1), "gap": "no libvirt"}, {}, Status.PROTECTED),
        ({"age": timedelta(hours=1), "names": frozenset({"gpu7"})}, {}, Status.PROTECTED),
        ({"age": timedelta(hours=1)}, {"by_compute": False}, Status.PROTECTED),
        ({"age": timedelta(hours=1)}, {"hosts": ("gpu2", "gpu3")}, Status.PROTECTED),
        ({"age": timedelta(hours=1)}, {"hosts": ()}, Status.PROTECTED),
        ({"age": timedelta(hours=1)}, None, Status.PROTECTED),
    ],
)
def test_a_task_of_which_no_nova_compute_knows(
    usage: dict[str, object], waiting: dict[str, object] | None, status: Status
) -> None:
    """Only a complete answer of each host that may continue it shows that its nova-compute started later."""
    verdict = Verdict(
        klass="A",
        title="",
        status=Status.PROTECTED,
        cell="cell1",
        host="gpu1",
        node="gpu1",
        host_state=HostState.UP,
        rows=(),
        owner="vm",
        evidence=(),
        because="a task",
        waiting=None if waiting is None else replace(WAITING, **waiting),  # type: ignore[arg-type]
    )
    answer = Usage(**{"names": frozenset({"gpu2"}), **usage})  # type: ignore[arg-type]
    judged = permission.restarted(verdict, {"gpu2": answer})
    assert judged.status is status
    assert (judged.advice == "end it") is (status is Status.STUCK)


def test_only_devices_that_hosts_were_asked_about_are_freed() -> None:
    verdict = judged(f"{UP}\n{B}", "B")

    def change(address: str, status: str) -> Change:
        return Change(table="pci_devices", id=1, seen={"address": address}, new={"status": status})

    retired = judged(f"service: null\nnode: {{deleted: 7200}}\n{ROW}\nowners: {{vm: }}", "C")
    asked, other = change("0000:81:00.0", "available"), change("0000:81:00.1", "available")
    assert permission.permits(retired, [asked])
    assert not permission.permits(retired, [other])
    capitals = judged(
        f"{DOWN}\nrows: [{{status: allocated, owner: vm, address: '0000:AF:00.0'}}]\nowners: {{vm: }}", "A"
    )
    assert permission.permits(capitals, [change("0000:AF:00.0", "available")])
    assert permission.permits(verdict, [asked, change("0000:81:00.1", "unavailable")])
    assert not permission.permits(verdict, [asked, other])
    assert not permission.permits(replace(verdict, questions=None), [asked])

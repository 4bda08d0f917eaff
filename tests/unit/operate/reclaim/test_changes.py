"""Steps on instances: read again before, waiting, offloading, failures. The cloud is a stand-in with Nova's states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.changes.change import ChangeOutcome, CloudChange
from gpustack.changes.run import run
from gpustack.cloud.servers import Disks, Event, Server
from gpustack.cloud.session import Refused, Unanswered
from gpustack.nova_options.masking import Masking
from gpustack.operate.reclaim.changes import PAUSE, NoticeChange, ShelvingChange, UnshelvingChange, changes, former
from gpustack.operate.reclaim.decide import judge
from gpustack.operate.reclaim.model import Candidate, Rules, Step
from support.change_runs import NoJournal
from support.fleet_answers import server

NOW = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - naive UTC, as in the fleet
RULES = Rules(
    aliases=frozenset({"k4200"}),
    projects=frozenset({"p1"}),
    idle_after={"SHUTOFF": timedelta(hours=1)},
    grace=timedelta(hours=48),
)
STOP = Event(at=NOW - timedelta(hours=2), server="vm", what="stop", request="req-1")
OVER = {"gpustack:reclaim_at": "2026-11-22T11:00:00Z", "gpustack:reclaim_after": "req-1"}


def candidate(**more: Any) -> Candidate:
    known = {"status": "SHUTOFF", "disks": Disks(image=False), "metadata": OVER, **more}
    return Candidate(server=server("vm", "gpu1", **known), actions=(STOP,))


@dataclass
class Nova:
    """An instance that passes through states, one for each read: status, task, host.

    :ivar later: the instance when it is judged again, if that differs from ``now``.
    """

    states: list[tuple[str, str, str]] = field(default_factory=list)
    now: Candidate | None = None
    later: tuple[Candidate | None, ...] = ()
    refuses: Mapping[str, Exception] = field(default_factory=dict)
    actions_of: tuple[str, ...] = ("shelve", "stop")
    shelved_by: str = ""
    done: list[Any] = field(default_factory=list)

    def again(self, server_id: str) -> Candidate | None:
        return self.later[0] if self.later else self.now

    def server(self, server_id: str) -> Server | None:
        """The instance of the plan until the first request, then its states."""
        if not self.states or (self.now and not self.done):
            return self.now.server if self.now else None
        status, task, host = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return None if status == "deleted" else Server(id=server_id, name="VM", host=host, status=status, task=task)

    def actions(self, server_id: str) -> tuple[Event, ...]:
        return tuple(Event(what=name, request=f"req-{name}", user=self.shelved_by) for name in self.actions_of)

    def user(self) -> str:
        return "admin"

    def why_failed(self, server_id: str, request: str) -> str:
        return f"because of {request}"

    def act(self, server_id: str, action: str) -> None:
        self.done.append(action)
        if action in self.refuses:
            raise self.refuses[action]

    def mark(self, server_id: str, metadata: dict[str, str]) -> None:
        self.act(server_id, "mark")
        self.done[-1] = metadata

    def unmark(self, server_id: str, key: str) -> None:
        self.done.append(key)


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses. A read takes a second."""
    ticks, pauses = count(), list[float]()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)), sleep=pauses.append)
    monkeypatch.setattr("gpustack.operate.reclaim.changes.time", clock)
    return pauses


def planned(entry: Candidate, nova: Nova) -> CloudChange:
    decision = judge(entry, RULES, NOW)
    assert decision is not None
    (change,) = changes([decision], nova.again, RULES, projects={"p1": "ops"}, seconds=100, now=lambda: NOW)
    return change


def carried_out(change: CloudChange, nova: Nova) -> ChangeOutcome:
    (outcome,) = run([change], {change.object_kind: nova}, NoJournal())
    return outcome


def shelved(nova: Nova, entry: Candidate | None = None) -> ChangeOutcome:
    return carried_out(planned(entry or candidate(), nova), nova)


OFFLOADED = ("SHELVED_OFFLOADED", "", "")
SHELVING = ("SHUTOFF", "shelving", "gpu1")


@pytest.mark.parametrize(
    ("states", "result", "requests"),
    [
        # shelved_offload_time = 0, or a volume; the host is removed last.
        ([SHELVING, ("SHELVED", "shelving_offloading", "gpu1"), ("SHELVED_OFFLOADED", "", "gpu1"), OFFLOADED],
         "done", ["shelve"]),
        # shelved_offload_time = -1
        ([SHELVING, ("SHELVED", "", "gpu1"), ("SHELVED", "shelving_offloading", "gpu1"), OFFLOADED],
         "done", ["shelve", "shelve_offload"]),
        ([SHELVING, ("SHELVED", "", "gpu1"), ("SHELVED", "", "gpu1")], "failed", ["shelve", "shelve_offload"]),
        ([SHELVING, ("SHUTOFF", "", "gpu1")], "failed", ["shelve"]),
        ([SHELVING, ("ERROR", "", "gpu1")], "failed", ["shelve"]),
        ([SHELVING], "failed", ["shelve"]),
        ([SHELVING, ("deleted", "", "")], "failed", ["shelve"]),
    ],
)  # fmt: skip
def test_shelving_ends_when_the_host_has_freed_the_gpus(
    states: list[tuple[str, str, str]], result: str, requests: list[str]
) -> None:
    nova = Nova(states=list(states), now=candidate())
    outcome = shelved(nova)
    assert (outcome.result, nova.done) == (result, requests), outcome.detail
    assert outcome.id == ("req-shelve" if result == "done" else "")


def test_a_failure_names_novas_reason() -> None:
    nova = Nova(states=[SHELVING, ("SHUTOFF", "", "gpu1")], now=candidate())
    assert "because of req-shelve" in shelved(nova).detail
    without = Nova(states=[SHELVING, ("SHUTOFF", "", "gpu1")], now=candidate(), actions_of=())
    assert shelved(without).detail == "the instance is SHUTOFF: see the log of nova-compute"
    deleted = Nova(states=[SHELVING, ("deleted", "", "")], now=candidate())
    assert shelved(deleted).detail == "the instance does not exist any more"


def test_after_a_shelving_without_end_nothing_begins(slept: list[float]) -> None:
    nova = Nova(states=[SHELVING], now=candidate())
    first = planned(candidate(), nova)
    second = replace(first, tag="shelving:other")
    outcomes = run([first, second], {"shelving": nova}, NoJournal())
    assert [outcome.result for outcome in outcomes] == ["failed", "not begun"]
    assert "partly done: still SHUTOFF, task shelving, after 100 s" in outcomes[0].detail
    assert set(slept) == {PAUSE}
    assert len(slept) >= 90


@pytest.mark.parametrize(
    ("status", "kept", "result", "requests"), [(409, 1, "done", 1), (409, 2, "done", 2), (403, 1, "failed", 1)]
)
def test_a_refused_offloading(status: int, kept: int, result: str, requests: int) -> None:
    """With 409, Nova's periodic task was faster; if it did not offload the instance, gpustack requests it again."""
    states: list[tuple[str, str, str]] = [*[("SHELVED", "", "gpu1")] * kept, OFFLOADED]
    nova = Nova(states=states, now=candidate(), refuses={"shelve_offload": Refused("no", status=status)})
    assert shelved(nova).result == result
    assert nova.done.count("shelve_offload") == requests


CHANGED: dict[str, Callable[[], Candidate | None]] = {
    "started": lambda: candidate(status="ACTIVE"),
    "deleted": lambda: None,
    "locked": lambda: candidate(locked=True),
    "task": lambda: candidate(task="powering-on"),
    "no notice": lambda: candidate(metadata={}),
    "stopped again": lambda: replace(candidate(), actions=(replace(STOP, request="req-2"), STOP)),
    "surplus": lambda: replace(candidate(), unknown="Placement is silent"),
    "offloaded": lambda: candidate(status="SHELVED_OFFLOADED", placed=False),
}


@pytest.mark.parametrize("change", CHANGED)
def test_an_instance_that_changed_since_the_plan_is_left_alone(change: str) -> None:
    nova = Nova(now=CHANGED[change]())
    outcome = shelved(nova)
    assert (outcome.result, nova.done) == ("skipped", [])
    assert outcome.detail


@pytest.mark.parametrize(
    ("later", "detail"),
    [
        (None, "the instance does not exist any more"),
        (
            replace(candidate(metadata={}), actions=(replace(STOP, at=NOW),)),
            "the instance is SHUTOFF now, and not idle any more",
        ),
        (candidate(metadata={}), "the next step is now: notify"),
        (candidate(locked=True), "GPU791: "),
        (replace(candidate(), no_return="x", unknown="y"), "; GPU794: "),
    ],
)
def test_an_instance_that_changes_directly_before_its_step_is_left_alone(later: Candidate | None, detail: str) -> None:
    nova = Nova(now=candidate(), later=(later,))
    outcome = shelved(nova)
    assert (outcome.result, nova.done) == ("skipped", [])
    assert detail in outcome.detail


def test_a_request_without_answer_is_read_again() -> None:
    silent = {"shelve": Unanswered("no answer")}
    assert shelved(Nova(states=[OFFLOADED], now=candidate(), refuses=silent)).result == "done"
    assert shelved(Nova(states=[SHELVING], now=candidate(), refuses=silent)).detail == "partly done: no answer"


WRITTEN = {"gpustack:reclaim_at": "2026-11-24T12:00:00Z", "gpustack:reclaim_after": "req-1"}


def test_a_notice_names_the_time_and_the_newest_request() -> None:
    fresh = candidate(metadata={})
    nova = Nova(now=fresh)
    outcome = shelved(nova, fresh)
    assert (outcome.result, outcome.id, nova.done) == ("done", "vm", [WRITTEN])
    assert outcome.change.describe() == "notify VM (vm): 1 GPU of gpu1 for ops, SHUTOFF for 2 h"
    # This notice counts from then on.
    decision = judge(candidate(metadata=WRITTEN), RULES, NOW)
    assert decision
    assert decision.step is Step.WAIT
    refusing = Nova(now=fresh, refuses={"mark": Refused("no", status=409)})
    assert shelved(refusing, fresh).result == "failed"
    used = replace(fresh, actions=(replace(STOP, request="req-2"), STOP))
    assert shelved(Nova(now=used), fresh).detail == "the instance was used since the plan"


def test_a_notice_is_withdrawn_and_written_by_the_undo() -> None:
    active = candidate(status="ACTIVE")
    nova = Nova(now=active)
    change = planned(active, nova)
    assert change.describe() == "withdraw the notice of VM (vm): 1 GPU of gpu1 for ops, not idle any more"
    assert (carried_out(change, nova).result, nova.done) == ("done", ["gpustack:reclaim_at", "gpustack:reclaim_after"])
    assert shelved(Nova(now=candidate(metadata=OVER, task="x")), active).result == "skipped"
    bare = Nova(now=candidate(status="ACTIVE", metadata={}))
    back = NoticeChange.from_record(change.reverse().to_record())
    assert (carried_out(back, bare).result, bare.done) == ("done", [OVER])
    assert carried_out(back, Nova(now=active)).result == "unchanged"


def test_a_bundle_hides_the_names_in_a_record() -> None:
    """Its texts name the instance and the project, which no key shows to the one who masks them."""
    idle = candidate(metadata={})
    uuid = "4c3344cb-0916-4623-b079-66488cd3a44e"
    written = planned(replace(idle, server=replace(idle.server, id=uuid)), Nova(now=idle)).to_record()
    masking = Masking()
    masking.learn(written)
    hidden = masking.data(written)
    assert (hidden["name"], "VM" in str(hidden)) == (f"instance-1 ({uuid})", False)
    assert " for project-1, " in hidden["why"]


def undo(request: str = "req-shelve") -> CloudChange:
    line: Mapping[str, Any] = {"server": "vm", "name": "VM", "status": "SHUTOFF", "reason": "idle", "request": request}
    return former(line).reverse()


SPAWNING = ("SHELVED_OFFLOADED", "spawning", "")


@pytest.mark.parametrize(
    ("states", "actions", "result"),
    [
        ([OFFLOADED, SPAWNING, ("ACTIVE", "", "gpu2")], ("shelve", "stop"), "done"),
        ([OFFLOADED, SPAWNING, OFFLOADED], ("shelveOffload", "shelve"), "failed"),  # no free GPU
        ([OFFLOADED, SPAWNING, ("ACTIVE", "", "gpu2")], ("unshelve", "shelve"), "done"),  # free by now
        ([OFFLOADED, SPAWNING], ("shelve",), "failed"),
        ([OFFLOADED, SPAWNING, ("ERROR", "", "gpu2")], ("shelve",), "failed"),
        ([OFFLOADED], ("stop", "unshelve"), "skipped"),  # purged, so unknown
        ([("ACTIVE", "", "gpu1")], ("unshelve", "shelve"), "skipped"),
        ([("SHUTOFF", "", "gpu1")], ("stop", "unshelve", "shelve"), "unchanged"),
        ([SPAWNING], ("shelve",), "skipped"),
        ([], ("shelve",), "skipped"),
    ],
)
def test_undo_unshelves_what_nobody_used_since(
    states: list[tuple[str, str, str]], actions: tuple[str, ...], result: str
) -> None:
    nova = Nova(states=list(states), actions_of=actions)
    outcome = carried_out(undo(), nova)
    assert (outcome.result, outcome.id) == (result, "req-shelve" if result in ("done", "unchanged") else "")
    assert nova.done == ([] if result in ("skipped", "unchanged") else ["unshelve"])


@pytest.mark.parametrize(
    ("request_id", "user", "detail"),
    [
        ("req-before", "", "somebody shelved the instance again since"),
        ("", "bob", "Nova has no record that gpustack shelved the instance"),
        ("req-shelve", "bob", ""),  # gpustack's own request, whatever the user of the undo
        ("", "admin", ""),
        ("", "", ""),
    ],
)
def test_undo_leaves_an_instance_that_others_shelved(request_id: str, user: str, detail: str) -> None:
    nova = Nova(states=[OFFLOADED, ("ACTIVE", "", "gpu1")], actions_of=("shelve", "unshelve"), shelved_by=user)
    outcome = carried_out(undo(request_id), nova)
    assert (outcome.result, outcome.detail) == ("skipped" if detail else "done", detail)
    assert nova.done == ([] if detail else ["unshelve"])


def test_an_unshelving_is_not_undone() -> None:
    change = undo()
    assert (type(change), change.reversible) == (UnshelvingChange, False)
    assert change.describe() == "unshelve VM (vm), which starts it: undo"
    assert planned(candidate(), Nova()).describe() == "shelve VM (vm): 1 GPU of gpu1 for ops, SHUTOFF for 2 h"
    assert ShelvingChange.reversible

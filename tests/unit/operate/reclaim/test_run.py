"""Steps on instances: read again before, waiting, offloading, failures. The cloud is a stand-in with Nova's states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from gpustack.base.errors import JournalError
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.servers import Disks, Event, Server
from gpustack.cloud.session import Refused, Unanswered
from gpustack.operate.reclaim.decide import judge
from gpustack.operate.reclaim.journal import ReclaimJournal, Shelved, read
from gpustack.operate.reclaim.model import Candidate, Choices, Decision, Rules, Step
from gpustack.operate.reclaim.run import Result, Runner, Undo
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
    """An instance that passes through states, one for each read: status, task, host."""

    states: list[tuple[str, str, str]] = field(default_factory=list)
    now: Candidate | None = None
    refuses: dict[str, Exception] = field(default_factory=dict)
    actions_of: tuple[str, ...] = ("shelve", "stop")
    done: list[Any] = field(default_factory=list)

    def again(self, server_id: str) -> Candidate | None:
        self.done.append("read")
        return self.now

    def server(self, server_id: str) -> Server | None:
        if not self.states:
            return None
        status, task, host = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return Server(id=server_id, name="VM", host=host, status=status, task=task)

    def actions(self, server_id: str) -> tuple[Event, ...]:
        return tuple(Event(what=name, request=f"req-{name}") for name in self.actions_of)

    def why_failed(self, server_id: str, request: str) -> str:
        return f"because of {request}"

    def act(self, server_id: str, action: str) -> None:
        self.done.append(action)
        if action in self.refuses:
            raise self.refuses[action]

    def mark(self, server_id: str, metadata: dict[str, str]) -> None:
        self.act(server_id, "mark")
        self.done.append(metadata)

    def unmark(self, server_id: str, key: str) -> None:
        self.done.append(key)


def runner(nova: Nova, seconds: float = 100) -> Runner:
    ticks = iter(range(1000))
    return Runner(
        api=cast("ServiceCloud", nova),
        reader=nova,
        rules=RULES,
        choices=Choices(),
        seconds=seconds,
        now=lambda: NOW,
        sleep=lambda seconds: None,
        clock=lambda: float(next(ticks)),
    )


def planned(entry: Candidate) -> Decision:
    decision = judge(entry, RULES, Choices(), NOW)
    assert decision is not None
    return decision


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[ReclaimJournal]:
    with closing(ReclaimJournal(tmp_path / "journal.jsonl")) as journal:
        yield journal


OFFLOADED = ("SHELVED_OFFLOADED", "", "")
SHELVING = ("SHUTOFF", "shelving", "gpu1")


@pytest.mark.parametrize(
    ("states", "result", "requests"),
    [
        # shelved_offload_time = 0, or a volume; the host is removed last.
        ([SHELVING, ("SHELVED", "shelving_offloading", "gpu1"), ("SHELVED_OFFLOADED", "", "gpu1"), OFFLOADED],
         Result.SHELVED, ["shelve"]),
        # shelved_offload_time = -1
        ([SHELVING, ("SHELVED", "", "gpu1"), ("SHELVED", "shelving_offloading", "gpu1"), OFFLOADED],
         Result.SHELVED, ["shelve", "shelve_offload"]),
        ([SHELVING, ("SHELVED", "", "gpu1"), ("SHELVED", "", "gpu1")], Result.FAILED, ["shelve", "shelve_offload"]),
        ([SHELVING, ("SHUTOFF", "", "gpu1")], Result.FAILED, ["shelve"]),
        ([SHELVING, ("ERROR", "", "gpu1")], Result.FAILED, ["shelve"]),
        ([SHELVING], Result.UNFINISHED, ["shelve"]),
        ([], Result.FAILED, ["shelve"]),
    ],
)  # fmt: skip
def test_shelving_ends_when_the_host_has_freed_the_gpus(
    journal: ReclaimJournal, states: list[tuple[str, str, str]], result: Result, requests: list[str]
) -> None:
    nova = Nova(states=list(states), now=candidate())
    outcome = runner(nova).shelve(planned(candidate()), journal)
    assert (outcome.result, nova.done) == (result, ["read", *requests])
    (entry,) = read(journal._file.path)
    assert (entry.server, entry.status, entry.outcome) == ("vm", "SHUTOFF", result.value)
    assert entry.request == "req-shelve"


def test_a_failure_names_novas_reason(journal: ReclaimJournal) -> None:
    nova = Nova(states=[SHELVING, ("SHUTOFF", "", "gpu1")], now=candidate())
    assert "because of req-shelve" in runner(nova).shelve(planned(candidate()), journal).detail


@pytest.mark.parametrize(
    ("status", "result", "requests"),
    [(409, Result.SHELVED, 1), (403, Result.FAILED, 1)],
)
def test_a_refused_offloading(journal: ReclaimJournal, status: int, result: Result, requests: int) -> None:
    """With 409, Nova's periodic task was faster."""
    states: list[tuple[str, str, str]] = [("SHELVED", "", "gpu1"), OFFLOADED]
    nova = Nova(states=states, now=candidate(), refuses={"shelve_offload": Refused("no", status=status)})
    assert runner(nova).shelve(planned(candidate()), journal).result is result
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
def test_an_instance_that_changed_since_the_plan_is_left_alone(journal: ReclaimJournal, change: str) -> None:
    nova = Nova(now=CHANGED[change]())
    outcome = runner(nova).shelve(planned(candidate()), journal)
    assert (outcome.result, nova.done) == (Result.SKIPPED, ["read"])
    assert outcome.detail
    assert read(journal._file.path) == ()


def test_a_request_without_answer_is_in_the_journal(journal: ReclaimJournal) -> None:
    nova = Nova(now=candidate(), refuses={"shelve": Unanswered("no answer")})
    with pytest.raises(Unanswered):
        runner(nova).shelve(planned(candidate()), journal)
    assert [entry.outcome for entry in read(journal._file.path)] == ["unfinished"]


def test_a_notice_names_the_time_and_the_newest_request() -> None:
    fresh = candidate(metadata={})
    nova = Nova(now=fresh)
    assert runner(nova).notify(planned(fresh)).result is Result.NOTIFIED
    written = {"gpustack:reclaim_at": "2026-11-24T12:00:00Z", "gpustack:reclaim_after": "req-1"}
    assert nova.done == ["read", "mark", written]
    # This notice counts from then on.
    assert planned(candidate(metadata=written)).step is Step.WAIT
    refusing = Nova(now=fresh, refuses={"mark": Refused("no", status=409)})
    assert runner(refusing).notify(planned(fresh)).result is Result.FAILED


def test_a_notice_is_withdrawn_from_an_instance_in_use() -> None:
    active = candidate(status="ACTIVE")
    nova = Nova(now=active)
    assert runner(nova).notify(planned(active)).result is Result.WITHDRAWN
    assert nova.done == ["read", "gpustack:reclaim_at", "gpustack:reclaim_after"]
    assert runner(Nova(now=candidate())).notify(planned(active)).result is Result.SKIPPED


ENTRY = Shelved(number=1, server="vm", name="VM", status="SHUTOFF", outcome="shelved", request="req-shelve")
SPAWNING = ("SHELVED_OFFLOADED", "spawning", "")


@pytest.mark.parametrize(
    ("states", "actions", "result"),
    [
        ([OFFLOADED, SPAWNING, ("ACTIVE", "", "gpu2")], ("shelve", "stop"), Result.RESTORED),
        ([OFFLOADED, SPAWNING, OFFLOADED], ("shelveOffload", "shelve"), Result.FAILED),  # no free GPU
        ([OFFLOADED, SPAWNING, ("ACTIVE", "", "gpu2")], ("unshelve", "shelve"), Result.RESTORED),  # free by now
        ([OFFLOADED, SPAWNING], ("shelve",), Result.UNFINISHED),
        ([OFFLOADED, SPAWNING, ("ERROR", "", "gpu2")], ("shelve",), Result.FAILED),
        ([OFFLOADED], ("stop", "unshelve"), Result.SKIPPED),  # purged, so unknown
        ([("ACTIVE", "", "gpu1")], ("unshelve", "shelve"), Result.SKIPPED),
        ([SPAWNING], ("shelve",), Result.SKIPPED),
        ([], ("shelve",), Result.SKIPPED),
    ],
)
def test_undo_unshelves_what_nobody_used_since(
    states: list[tuple[str, str, str]], actions: tuple[str, ...], result: Result
) -> None:
    nova = Nova(states=list(states), actions_of=actions)
    ticks = iter(range(1000))
    undo = Undo(
        api=cast("ServiceCloud", nova), seconds=100, sleep=lambda seconds: None, clock=lambda: float(next(ticks))
    )
    assert undo.unshelve(ENTRY).result is result
    assert nova.done == ([] if result is Result.SKIPPED else ["unshelve"])


def test_undo_leaves_an_instance_that_its_user_shelved() -> None:
    nova = Nova(states=[OFFLOADED], actions_of=("shelve", "unshelve"))
    undo = Undo(api=cast("ServiceCloud", nova), seconds=100)
    assert undo.unshelve(replace(ENTRY, request="req-before")).result is Result.SKIPPED
    assert nova.done == []


def test_journals_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for content in ("", "[]\n", '{"gpustack_cleanup_journal": 1}\n', '{"gpustack_reclaim_journal": 2}\n'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(JournalError):
            read(path)
    head = {"gpustack_reclaim_journal": 1}
    path.write_text(f'{json.dumps(head)}\n{{"begin": 1}}\n', encoding="utf-8")
    with pytest.raises(JournalError):
        read(path)
    line = {"begin": 1, "server": "vm", "name": "VM", "status": "SHUTOFF"}
    path.write_text(f"{json.dumps(head)}\n{json.dumps(line)}\n" + '{"end": 1, "outc', encoding="utf-8")
    assert read(path) == (Shelved(number=1, server="vm", name="VM", status="SHUTOFF"),)

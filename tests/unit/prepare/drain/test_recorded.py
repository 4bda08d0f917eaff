"""The record of a drain. A model of Nova carries the steps out; nothing signs in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import PlanError
from gpustack.changes import journal
from gpustack.changes.change import ChangeOutcome, ChangeResult
from gpustack.changes.closed import ReasonChange
from gpustack.changes.run import RunResult
from gpustack.changes.undo import plan_undo
from gpustack.cli.change import kinds
from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Server
from gpustack.cloud.session import Refused, Unanswered
from gpustack.prepare.drain.model import InstanceChoices, Policy
from gpustack.prepare.drain.recorded import RecordedCloud
from gpustack.prepare.drain.run import Runner, Target
from gpustack.prepare.drain.steps import Stop
from support.change_runs import PLACE
from support.compute_model import Killed, Nova

CHOICES = InstanceChoices(guests=Policy.STOP, device_guests=Policy.COLD_MIGRATE)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("gpustack.cloud.server_actions.ServiceCloud.__init__", lambda self, connection: None)
    monkeypatch.setattr(RecordedCloud, "connection", None, raising=False)
    monkeypatch.setattr("gpustack.prepare.drain.recorded.place_of", lambda connection: dict(PLACE))


def drained(api: Nova, phase: str = "empty") -> None:
    now = iter(range(10**6))
    cloud: Any = None
    with RecordedCloud(cloud, lambda text: None) as record:
        runner = Runner(
            api=api,
            target=Target(host="gpu1"),
            seconds=100,
            recorded=record.recorded,
            sleep=lambda s: None,
            clock=lambda: float(next(now)),
        )
        plan = runner.empty(CHOICES, "why", disabled=False) if phase == "empty" else runner.resume()
        assert not plan.refused


def nova() -> Nova:
    guests = [Server(id=name, name=name, host="gpu1", status="ACTIVE") for name in "ab"]
    guests[1] = Server(id="b", name="b", host="gpu1", status="ACTIVE", demands=("k4200",))
    return Nova(service=Service(id="s1", host="gpu1", enabled=True, up=True), guests={g.id: g for g in guests})


def recorded() -> list[tuple[str, str, str, ChangeResult]]:
    """The steps of all records, oldest first."""
    records = [record for _, record in journal.records() if isinstance(record, journal.RunRecord)]
    return [
        (change.name, change.seen, change.wanted, record.results[change.key])
        for record in reversed(records)
        for change in record.head.changes
    ]


def test_each_step_on_an_instance_is_recorded_with_both_states() -> None:
    api = nova()
    drained(api)
    drained(api, "resume")
    done = ChangeResult.DONE
    assert recorded() == [
        ("a (a)", "ACTIVE on gpu1", "SHUTOFF", done),
        ("b (b)", "ACTIVE on gpu1", "on another host, unconfirmed", done),
        ("b (b)", "VERIFY_RESIZE on gpu2", "migration confirmed", done),
        ("b (b)", "ACTIVE on gpu2", "without gpustack's marks", done),
        ("a (a)", "SHUTOFF on gpu1", "ACTIVE", done),
        ("a (a)", "ACTIVE on gpu1", "without gpustack's marks", done),
    ]
    runs = [record for _, record in journal.records() if isinstance(record, journal.RunRecord)]
    assert [(run.head.command, run.state) for run in runs] == [("host apply", "done")] * 2


@pytest.mark.parametrize(
    ("error", "result", "detail"),
    [
        (Refused("no", status=409), ChangeResult.FAILED, ["no"]),
        (Unanswered("no answer"), ChangeResult.UNKNOWN, ["no answer"]),
        (Killed(), ChangeResult.UNKNOWN, []),
    ],
)
def test_a_step_that_ends_the_run_is_recorded_and_cannot_be_undone(
    error: BaseException, result: ChangeResult, detail: list[str]
) -> None:
    cloud: Any = None
    step = Stop(server="a", name="a", why="")
    with (
        pytest.raises(type(error)),
        RecordedCloud(cloud, lambda text: None) as record,
        record.recorded(step, "ACTIVE on gpu1"),
    ):
        raise error
    ((_, run),) = journal.records()
    assert isinstance(run, journal.RunRecord)
    assert (run.state, list(run.results.values())) == ("unfinished", [result])
    assert [line.detail for line in run.ends.values()] == detail
    changes, final = plan_undo(run, kinds())
    assert not changes
    assert [change.describe() for change in final] == ["a (a): SHUTOFF (was ACTIVE on gpu1)"]


@pytest.mark.parametrize(("most", "closes"), [(0, True), (3, True), (2, False), (1, False)])
def test_a_limit_counts_the_hosts_that_gpustack_has_closed(
    most: int, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in Nova, while the run holds the lock of the cloud: other runs may close hosts until then."""
    reasons = {
        "gpu1": "gpustack: maintenance (an earlier run)",  # the host itself
        "gpu2": "gpustack: maintenance (kernel arguments)",
        "gpu3": "gpustack: GPU 81:00.0 (ECC errors) | text of others",
        "gpu4": "of an operator",
    }
    services = [Service(id=name, host=name, enabled=False, up=True, reason=text) for name, text in reasons.items()]
    services.append(Service(id="5", host="gpu5", enabled=True, up=True, reason="gpustack: maintenance (over)"))
    monkeypatch.setattr(RecordedCloud, "services", lambda self: tuple(services))
    monkeypatch.setattr("gpustack.prepare.drain.recorded.service_of", lambda *_: Service(id="6", host="gpu6"))
    asked: list[str] = []

    def run(*_: object, first: Callable[[], None], **__: object) -> RunResult:
        asked.append("locked")
        first()
        change = ReasonChange(why="", name="x", seen=False, wanted=True)
        outcome = ChangeOutcome(change=change, result=ChangeResult.DONE)
        return RunResult(outcomes=(outcome,), journal=Path("journal"))

    monkeypatch.setattr("gpustack.prepare.drain.recorded.recorded_run", run)
    connection: Any = None
    cloud = RecordedCloud(connection, lambda text: None, most + 1 if most else 0)  # gpu1 is another host for gpu6
    if closes:
        cloud.close("gpu6", "why")
    else:
        with pytest.raises(
            PlanError, match=rf"3 other compute services.*: gpu1, gpu2, gpu3; .*_disabled {most + 1}, gpu6"
        ):
            cloud.close("gpu6", "why")
    cloud.reopen("gpu6")
    assert asked == ["locked", "locked"]


def test_hosts_of_a_silent_cell_count_as_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Service(host="gpu1", enabled=False, up=False, answers=False)
    monkeypatch.setattr(RecordedCloud, "services", lambda self: (silent,))
    connection: Any = None
    with pytest.raises(PlanError, match="their cell does not answer: gpu1"):
        RecordedCloud(connection, lambda text: None, 1)._check_limit("gpu2")
    RecordedCloud(connection, lambda text: None, 1)._check_limit("gpu1")

"""Two operators on one host, in each order of their requests; Nova is a model, the requests are real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.base.errors import PlanError
from gpustack.changes import lock
from gpustack.changes.change import ChangeResult
from gpustack.changes.closed import ReasonChange, reason_change
from gpustack.changes.run import run
from gpustack.cloud import closed
from gpustack.cloud.closed import MAINTENANCE, Reasons, gpu_reason, parse, reasons_of, service_of
from gpustack.cloud.compute import Service
from support.change_runs import NoJournal
from support.fleet_cloud import StandIn

FIRST, SECOND = gpu_reason("0000:81:00.0"), gpu_reason("0000:82:00.0")


class NovaModel(StandIn):
    """A service and an aggregate; ``before`` is called ahead of each request.

    :param of: the model whose state this one shares, for another operator.
    """

    def __init__(
        self, reasons: Reasons, before: Callable[[str], None] = lambda path: None, of: NovaModel | None = None
    ) -> None:
        super().__init__()
        self.before = before
        self.aggregate: dict[str, Any] = of.aggregate if of else {}
        self.service = of.service if of else {"id": "s1", "host": "gpu1", "state": "up", **_status(reasons)}

    @property
    def reasons(self) -> Reasons:
        return parse(self.service["disabled_reason"]) if self.service["status"] == "disabled" else Reasons()

    def answer(self, service: str, path: str) -> Any:
        body = self.written.pop() if " " in path else None
        self.before(path)
        method, _, at = path.rpartition(" ")
        if method == "PUT":
            self.service |= {"disabled_reason": None, **body}
        elif at.startswith("/os-services"):
            return 200, {"services": [dict(self.service)]}
        elif path == "POST /os-aggregates":
            if self.aggregate:
                return 409, {"conflictingRequest": {"message": "exists"}}
            self.aggregate |= {"id": 1, "name": lock.LOCK, "hosts": [], "metadata": {}, "uuid": "a"}
            return 200, {"aggregate": self.aggregate}
        elif method == "DELETE":
            self.aggregate.clear()
        elif at == "/os-aggregates":
            return 200, {"aggregates": [self.aggregate] if self.aggregate else []}
        return 200, {}


def _status(reasons: Reasons) -> dict[str, Any]:
    return {"status": "disabled", "disabled_reason": reasons.to_text()} if reasons else {"status": "enabled"}


class Stage:
    """Lets one of several operators take its next request at a time, in a given order."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = list(order)
        self._turns = [threading.Semaphore(0) for _ in range(2)]
        self._ready = [threading.Event() for _ in range(2)]
        self._actor = threading.local()
        self.ended = [False, False]

    def wait(self, number: int) -> None:
        self._ready[number].set()
        self._turns[number].acquire()

    def sleep(self, _seconds: float) -> None:
        self.wait(self._actor.number)

    def play(self, acts: Sequence[Callable[[], None]], after: Callable[[], None]) -> None:
        def act(number: int) -> None:
            self._actor.number = number
            self.wait(number)
            try:
                acts[number]()
            finally:
                self.ended[number] = True
                self._ready[number].set()

        threads = [threading.Thread(target=act, args=(number,), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        turn = 0
        while not all(self.ended):
            for ready in self._ready:
                ready.wait()
            after()
            turn += 1
            wish = self._order.pop() if self._order else turn % 2
            number = wish if not self.ended[wish] else 1 - wish
            if self.ended[number]:
                break  # the other one ended meanwhile
            self._ready[number].clear()
            self._turns[number].release()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    ("present", "changes", "left"),
    [
        ((), ((FIRST, True), (SECOND, True)), {FIRST, SECOND}),
        ((), ((FIRST, True), (MAINTENANCE, True)), {FIRST, MAINTENANCE}),
        ((FIRST,), ((FIRST, False), (SECOND, True)), {SECOND}),
        ((MAINTENANCE,), ((MAINTENANCE, False), (SECOND, True)), {SECOND}),
        ((FIRST, SECOND), ((FIRST, False), (SECOND, False)), set()),
    ],
)
@given(order=st.lists(st.integers(0, 1), max_size=24))
@settings(max_examples=25, deadline=None)
def test_no_order_of_two_operators_opens_the_host_early(
    present: tuple[str, ...], changes: tuple[tuple[str, bool], tuple[str, bool]], left: set[str], order: list[int]
) -> None:
    stage = Stage(order)
    start = Reasons()
    for reason in present:
        start = start.plus(reason, "why")
    model = NovaModel(start)

    def operator(number: int) -> None:
        reason, wanted = changes[number]
        nova = NovaModel(start, lambda path: stage.wait(number), model)
        with lock.in_the_cloud(nova.connection, "run", "ann", "desk", lambda text: None):
            service = service_of(nova.connection, "gpu1")
            change = reason_change(service, reason, "why", close=wanted, why="a test")
            (outcome,) = run([change], {"closed_host": ReasonChange.client(nova.connection)}, NoJournal())
            assert outcome.result is ChangeResult.DONE

    def closed_while_a_reason_is_left() -> None:
        for (reason, wanted), ended in zip(changes, stage.ended, strict=True):
            if wanted and ended:
                assert reason in model.reasons.own

    pause, lock.time.sleep = lock.time.sleep, stage.sleep  # type: ignore[assignment]
    try:
        stage.play([lambda: operator(0), lambda: operator(1)], closed_while_a_reason_is_left)
    finally:
        lock.time.sleep = pause
    assert model.reasons.own.keys() == left
    assert model.aggregate == {}


@pytest.mark.parametrize("reason", [FIRST, MAINTENANCE])
@pytest.mark.parametrize("at", range(3))
def test_a_hand_that_writes_meanwhile_is_not_overwritten(reason: str, at: int) -> None:
    """Somebody outside gpustack, without its lock, writes between its requests: the text stays."""
    requests: list[str] = []

    def hand(path: str) -> None:
        requests.append(path)
        if len(requests) == at + 1 and not path.startswith("PUT"):
            nova.service |= {"status": "disabled", "disabled_reason": "Bob: memory test"}

    nova = NovaModel(Reasons(), hand)
    closed.set_reason(nova.connection, "gpu1", reason, "why")
    assert reason in nova.reasons.own
    if at != 1:
        assert nova.reasons.other == "Bob: memory test"
    closed.set_reason(nova.connection, "gpu1", reason, None)
    assert bool(nova.reasons) == (at != 1)


def test_a_change_is_plain_data_and_an_undo_ends_only_its_own_reason() -> None:
    nova = NovaModel(Reasons(other="Bob").plus(SECOND, "ECC"))
    change = reason_change(service_of(nova.connection, "gpu1"), FIRST, "no reset", close=True, why="a test")
    again = ReasonChange.from_record(change.to_record())
    api = {"closed_host": ReasonChange.client(nova.connection)}
    assert [outcome.result for outcome in run([again], api, NoJournal())] == ["done"]
    assert [outcome.result for outcome in run([again], api, NoJournal())] == ["unchanged"]
    assert [outcome.result for outcome in run([again.reverse()], api, NoJournal())] == ["done"]
    assert nova.reasons == Reasons(own={SECOND: "ECC"}, other="Bob")
    assert ReasonChange.from_record({**change.to_record(), "about": {"host": "gpu1", "reason": "x"}}).permitted()
    assert change.permitted() == ""


def test_an_undo_names_the_reasons_of_now() -> None:
    """When the change was made, it was the only reason; a GPU that was closed since keeps the host closed."""
    nova = NovaModel(Reasons())
    change = reason_change(service_of(nova.connection, "gpu1"), FIRST, "no reset", close=True, why="a test")
    for others, text in (
        (Reasons(), f"enable nova-compute of gpu1: {FIRST} ended"),
        (Reasons().plus(SECOND, "ECC"), f"end the reason {FIRST}; host stays closed: {SECOND} out of service (ECC)"),
    ):
        nova.service |= _status(others.plus(FIRST, "no reset"))
        back = change.reverse().remaining(nova.connection)
        assert back is not None
        assert back.describe() == text
    gone = StandIn({"compute /os-services": (200, {"services": []})})
    assert change.reverse().remaining(gone.connection) is None


def test_a_service_that_was_created_again_is_open() -> None:
    """Its reasons are gone: the next run adds them."""
    nova = NovaModel(Reasons())
    service = Service(id="old", host="gpu1", enabled=False, reason="gpustack: GPU 81:00.0")
    change = reason_change(service, SECOND, "why", close=True, why="a test")
    assert [o.result for o in run([change], {"closed_host": ReasonChange.client(nova.connection)}, NoJournal())] == [
        "done"
    ]
    assert reasons_of(service_of(nova.connection, "gpu1")).own.keys() == {SECOND}


@pytest.mark.parametrize(
    ("reason", "text", "close", "expected"),
    [
        (FIRST, "ECC", True, ("gpu1 0000:81:00.0", "ECC", "", True)),
        (MAINTENANCE, "kernel", True, ("gpu1", "kernel", "", True)),
        (SECOND, "", False, ("gpu1 0000:82:00.0", "no reset", "GPU 0000:81:00.0 out of service (broken)", False)),
        (
            SECOND,
            "said again",
            False,
            ("gpu1 0000:82:00.0", "said again", "GPU 0000:81:00.0 out of service (broken)", False),
        ),
    ],
)
def test_a_change_names_the_host_the_reason_and_what_stays(
    reason: str, text: str, close: bool, expected: tuple[str, str, str, bool]
) -> None:
    reasons = Reasons().plus(FIRST, "broken").plus(SECOND, "no reset")
    service = Service(id="s1", host="gpu1", enabled=False, reason=reasons.to_text())
    change = reason_change(service, reason, text, close=close, why="a test")
    place = change.name.removesuffix(" as a reason to close the host")
    assert (place, change.about["text"], change.about["left"], change.wanted) == expected
    assert change.seen == (reason != MAINTENANCE)


def test_reasons_that_do_not_fit_are_refused_before_the_change() -> None:
    service = Service(id="s1", host="gpu1", enabled=False, reason="x" * 250)
    with pytest.raises(PlanError, match="do not fit"):
        reason_change(service, FIRST, "why", close=True, why="a test")


def test_a_reason_that_is_not_of_gpustack_has_an_explanation() -> None:
    foreign = ReasonChange(why="", name="", about={"host": "gpu1", "reason": "x"}, seen=False, wanted=True)
    assert foreign.permitted() == "gpustack has no such reason to close a host"
    assert replace(foreign, about={"host": "gpu1", "reason": MAINTENANCE}).permitted() == ""
    model = NovaModel(Reasons())
    done = replace(foreign, about={"host": "gpu1", "reason": MAINTENANCE, "text": "why"})
    assert done.carry_out(model.connection) == ""

"""One run at a time on a cloud."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gpustack.base.errors import JournalError, LockedError
from gpustack.changes import lock
from gpustack.changes.journal import Cloud, RunHead, directory
from gpustack.changes.lock import LockHolder, on_this_machine
from gpustack.cloud.session import Refused
from gpustack.nova_options.aggregates import Aggregate


class Aggregates:
    """Nova's aggregates, as the lock sees them: a stand-in; tests/nova has the real ones."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.present: Aggregate | None = None
        self.allowed, self.number = allowed, 0

    def create_aggregate(self, cloud: object, name: str) -> int:
        if not self.allowed:
            raise Refused("can't create", status=403)
        if self.present:
            raise Refused("can't create", status=409)
        self.number += 1
        self.put({}, datetime.now(UTC))
        return self.number

    def put(self, metadata: Mapping[str, str], created: datetime) -> None:
        self.present = Aggregate(
            name="gpustack-lock", hosts=frozenset(), id=self.number, metadata=dict(metadata), created=created
        )

    def lock(self, cloud: object) -> Aggregate | None:
        return self.present

    def change_aggregate(self, cloud: object, aggregate: int, action: str, body: Mapping[str, Any]) -> None:
        assert self.metadata is not None
        assert (self.number, action) == (aggregate, "set_metadata")
        self.put(body["metadata"], datetime.now(UTC))

    def delete_aggregate(self, cloud: object, aggregate: int) -> None:
        if self.number == aggregate:
            self.present = None

    @property
    def metadata(self) -> Mapping[str, str] | None:
        return self.present.metadata if self.present else None


@contextlib.contextmanager
def in_the_cloud(api: Aggregates, *arguments: Any, **options: Any) -> Iterator[None]:
    with mock.patch.object(lock, "compute", api), lock.in_the_cloud(None, *arguments, **options):  # type: ignore[arg-type]
        yield


def held(api: Aggregates, age: timedelta) -> None:
    at = datetime.now(UTC) - age
    api.number += 1
    api.put(LockHolder(run="other", user="eve", host="far", at=at).to_metadata(), at)


def test_the_lock_names_its_run_and_is_removed() -> None:
    api = Aggregates()
    with in_the_cloud(api, "run1", "ann", "here", pytest.fail):
        assert (api.metadata or {})["gpustack_lock"] == "run1"
        with (
            pytest.raises(LockedError, match="run1 of ann on here"),
            in_the_cloud(api, "run2", "bob", "there", pytest.fail, seconds=0),
        ):
            pass
    assert api.present is None


def test_a_lock_without_renewal_is_taken_over() -> None:
    api, warnings = Aggregates(), list[str]()
    held(api, lock.STALE + timedelta(seconds=1))
    with in_the_cloud(api, "run1", "ann", "here", warnings.append, seconds=0):
        assert (api.metadata or {})["gpustack_user"] == "ann"
    assert "other of eve on far" in warnings[0]


def test_a_lock_that_names_no_run_is_taken_over_after_a_minute() -> None:
    api, warnings = Aggregates(), list[str]()
    api.number += 1
    api.put({}, datetime.now(UTC) - timedelta(seconds=61))
    with in_the_cloud(api, "mine", "op", "host", warnings.append, seconds=0):
        assert api.metadata is not None
        assert api.metadata["gpustack_lock"] == "mine"
    api.put({}, datetime.now(UTC) - timedelta(seconds=50))
    with pytest.raises(LockedError), in_the_cloud(api, "mine", "op", "host", warnings.append, seconds=0):
        pass
    assert len(warnings) == 1


def test_the_lock_of_a_killed_run_of_this_machine_is_taken_over_at_once() -> None:
    api, warnings = Aggregates(), list[str]()
    with in_the_cloud(api, "killed", "op", "host", warnings.append, seconds=0):
        left = dict(api.metadata or {})
    api.number += 1
    api.put(left, datetime.now(UTC))
    with in_the_cloud(api, "next", "op", "host", warnings.append, seconds=0):
        assert "killed of op on host" in warnings[0]
    api.put(left, datetime.now(UTC))
    with pytest.raises(LockedError), in_the_cloud(api, "next", "op", "other-host", warnings.append, seconds=0):
        pass


def test_the_lock_of_a_copy_of_this_machine_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloned image has the name of this machine, the same path of the state, and often its machine-id."""
    api = Aggregates()
    monkeypatch.setattr(lock, "_BOOT", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("first\n", encoding="utf-8")
    with in_the_cloud(api, "run1", "op", "host", pytest.fail, seconds=0):
        left = dict(api.metadata or {})
    api.number += 1
    api.put(left, datetime.now(UTC))
    (tmp_path / "boot_id").write_text("second\n", encoding="utf-8")
    with pytest.raises(LockedError), in_the_cloud(api, "run2", "op", "host", pytest.fail, seconds=0):
        pass


def test_the_lock_of_another_container_of_this_machine_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the machine's network, containers have its name, and all have their records at the same path."""
    api = Aggregates()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with in_the_cloud(api, "run1", "op", "host", pytest.fail, seconds=0):
        directory().rename(tmp_path / "of-the-first")
        with pytest.raises(LockedError), in_the_cloud(api, "run2", "op", "host", pytest.fail, seconds=0):
            pass


@pytest.mark.parametrize("error", [Refused("can't set metadata: HTTP 503", status=503), KeyboardInterrupt()])
def test_a_lock_that_cannot_be_named_is_removed(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Without a name, it would lock out every run for a minute."""
    api = Aggregates()
    monkeypatch.setattr(api, "change_aggregate", mock.Mock(side_effect=error))
    with pytest.raises(type(error)), in_the_cloud(api, "run1", "op", "host", pytest.fail, seconds=0):
        pass
    assert api.present is None


def test_a_signal_while_the_lock_is_created_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the process between the request and the name."""
    api, former = Aggregates(), signal.getsignal(signal.SIGTERM)
    create = api.create_aggregate

    def created(*arguments: Any) -> int:
        number = create(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        return number

    def ended(*_arguments: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(api, "create_aggregate", created)
    signal.signal(signal.SIGTERM, ended)
    try:
        with pytest.raises(SystemExit, match="143"), in_the_cloud(api, "run1", "op", "host", pytest.fail, seconds=0):
            pass
        assert signal.getsignal(signal.SIGTERM) is ended
    finally:
        signal.signal(signal.SIGTERM, former)
    assert (api.number, api.present) == (1, None)


def test_a_lock_that_is_renewed_is_not_taken_over() -> None:
    api = Aggregates()
    held(api, lock.STALE - timedelta(seconds=30))
    with pytest.raises(LockedError), in_the_cloud(api, "run1", "ann", "here", pytest.fail, seconds=0):
        pass


def test_the_lock_of_a_machine_whose_clock_is_slow_is_not_taken_over() -> None:
    api = Aggregates()
    slow = LockHolder(run="other", user="eve", host="far", at=datetime.now(UTC) - 2 * lock.STALE)
    api.number += 1
    api.put(slow.to_metadata(), datetime.now(UTC))  # Nova's clock
    with pytest.raises(LockedError), in_the_cloud(api, "run1", "ann", "here", pytest.fail, seconds=0):
        pass


def test_a_user_without_the_right_gets_a_warning() -> None:
    warnings = list[str]()
    with in_the_cloud(Aggregates(allowed=False), "run1", "ann", "here", warnings.append):
        pass
    assert warnings == [
        "this user may not create aggregates: runs of other users and on other machines are not locked out"
    ]


def test_the_lock_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RENEW", 0.01)
    api = Aggregates()
    with in_the_cloud(api, "run1", "ann", "here", pytest.fail):
        first = api.present
        end = lock.time.monotonic() + 120
        while api.present is first:
            assert lock.time.monotonic() < end
            lock.time.sleep(0.01)


def test_a_lock_that_names_no_time_zone_has_utc() -> None:
    aggregate = Aggregate(name="gpustack-lock", hosts=frozenset(), metadata={"gpustack_at": "2026-01-02T03:04:05"})
    assert LockHolder.of(aggregate).at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_the_renewal_ends_with_the_lock() -> None:
    others = set(threading.enumerate())  # threads of other tests may end at any time
    with in_the_cloud(Aggregates(), "run1", "ann", "here", pytest.fail):
        (renewal,) = set(threading.enumerate()) - others
    assert not renewal.is_alive()


def test_a_lock_that_cannot_be_created_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    with pytest.raises(JournalError, match="nothing was changed") as caught, on_this_machine("cloud"):
        pass
    assert "; or set XDG_STATE_HOME to a directory of your own" in str(caught.value)


def _warned(text: str) -> None:
    raise TimeoutError(text)


def test_one_run_at_a_time_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    program = "from gpustack.changes.lock import on_this_machine\nwith on_this_machine('c', seconds=0): print('in')"
    with on_this_machine("c"):
        pass
    (tmp_path / "gpustack/changes/c.lock").write_text(f"process {'1' * 30}")
    with on_this_machine("c"):
        with pytest.raises(LockedError), on_this_machine("c", pytest.fail, seconds=0):
            pass
        with pytest.raises(TimeoutError), on_this_machine("c", _warned):
            pass
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert f"another run changes this cloud: process {os.getpid()}\n" in done.stderr
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "in\n"


def test_a_run_that_waits_reports_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan was made before the other run ended, so the other run's changes may require more."""
    api, warnings, pauses = Aggregates(), list[str](), list[float]()
    held(api, timedelta())
    head = RunHead(id="mine", command="flavor apply", cloud=Cloud())
    other = contextlib.ExitStack()
    other.enter_context(on_this_machine(head.cloud.key))

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:  # the lock of this machine is free, that of the cloud is not
            other.close()
        if len(pauses) == 4:
            api.delete_aggregate(None, api.number)

    monkeypatch.setattr(lock.time, "sleep", pause)
    with mock.patch.object(lock, "compute", api), lock.held(mock.sentinel.cloud, head, warnings.append):
        pass
    assert pauses == [2.0] * 4
    (warning,) = warnings
    assert warning.startswith("waiting for another run on this cloud")
    assert warning.endswith("run the command again")

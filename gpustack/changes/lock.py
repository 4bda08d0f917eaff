"""One run at a time on a cloud: a file lock on this machine, and a lock in the cloud between machines.

The lock in the cloud is an empty aggregate of Nova (:data:`gpustack.cloud.compute.LOCK`). Nova enforces unique names,
so its creation is atomic. Its metadata name the run, which renews the time every five minutes.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Self

from gpustack.base.errors import CloudError, JournalError, LockedError
from gpustack.base.files import file_errors, make_directory, open_private, read_text, user_name
from gpustack.changes.journal import RunHead, directory
from gpustack.changes.signals import stopping
from gpustack.cloud import Connection, compute
from gpustack.cloud.compute import LOCK
from gpustack.cloud.session import CONFLICT, FORBIDDEN, MISSING, Refused, tolerating
from gpustack.nova_options.aggregates import Aggregate

WAIT = 30.0
"""Seconds to wait for another run."""
RENEW = 300.0
"""Seconds between renewals."""
STALE = timedelta(minutes=15)
"""The age after which another run may take the lock over."""
_UNNAMED = timedelta(minutes=1)
"""The same for a lock whose run has not named itself, which it does with its second request."""
_TRY = 2.0
_WAITING = "waiting for another run on this cloud; this run's plan lacks its changes: afterwards, run the command again"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """The run that has the lock.

    :ivar state: identifies a boot of the host with its state directory; only one run at a time has both.
    """

    run: str
    user: str
    host: str
    at: datetime
    state: str = ""
    named: bool = True

    @property
    def is_stale(self) -> bool:
        """Whether its run does not renew it any more."""
        return datetime.now(UTC) - self.at > (STALE if self.named else _UNNAMED)

    def to_metadata(self) -> dict[str, str]:
        """The metadata of the aggregate."""
        return {
            "gpustack_lock": self.run,
            "gpustack_user": self.user,
            "gpustack_host": self.host,
            "gpustack_at": self.at.isoformat(timespec="seconds"),
            "gpustack_state": self.state,
        }

    @classmethod
    def of(cls, aggregate: Aggregate) -> Self:
        """The holder of a lock, which names itself directly after the creation; its clock may be slower than Nova's."""
        metadata, at = aggregate.metadata, aggregate.created or datetime.now(UTC)
        with contextlib.suppress(LookupError, ValueError):
            at = datetime.fromisoformat(metadata["gpustack_at"])
        return cls(
            run=metadata.get("gpustack_lock", "a run"),
            user=metadata.get("gpustack_user", "an unknown user"),
            host=metadata.get("gpustack_host", "an unknown host"),
            at=max(at if at.tzinfo else at.replace(tzinfo=UTC), aggregate.created or datetime.min.replace(tzinfo=UTC)),
            state=metadata.get("gpustack_state", ""),
            named="gpustack_lock" in metadata,
        )

    def __str__(self) -> str:
        return f"{self.run} of {self.user} on {self.host}, last renewed at {self.at.isoformat(timespec='seconds')}"


@contextlib.contextmanager
def held(
    connection: Connection | None, head: RunHead, warn: Callable[[str], None], *, seconds: float = WAIT
) -> Iterator[None]:
    """Hold both locks of a cloud for a run.

    :param connection: None to hold the lock on this machine only.
    :param warn: is called with warnings.
    :param seconds: how long to wait for another run.
    :raises LockedError: if another run holds one of them.
    """
    user, host, warn = user_name(), platform.node(), functools.cache(warn)  # a run that waits says so once
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_this_machine(head.cloud.key, warn, seconds=seconds))
        if connection is None:
            warn("without a cloud (--os-cloud), runs of other users and on other machines are not locked out")
        else:
            stack.enter_context(in_the_cloud(connection, head.id, user, host, warn, seconds=seconds))
        yield


@contextlib.contextmanager
def on_this_machine(
    cloud: str, warn: Callable[[str], None] = lambda text: None, *, seconds: float = WAIT
) -> Iterator[None]:
    """Hold the file lock of a cloud.

    :param cloud: its key (:attr:`gpustack.changes.journal.Cloud.key`).
    :param warn: is called with warnings.
    :raises LockedError: if another run holds it.
    """
    path = directory() / f"{cloud}.lock"
    what, remedy = "the lock can't be created", "set XDG_STATE_HOME to a directory of your own"
    with file_errors(JournalError, what, path, state="nothing was changed", remedy=remedy):
        make_directory(path.parent)
        file = os.fdopen(open_private(path, os.O_RDWR), "r+b", buffering=0)
    with file:
        end = time.monotonic() + seconds
        while not _locked(file):
            if time.monotonic() >= end:
                holder = file.read(200).decode(errors="replace").strip() or "unknown"
                remedy = "wait until it ends; `gpustack history` lists the changes"
                raise LockedError(f"another run changes this cloud: {holder}", where=str(path), remedy=remedy)
            warn(_WAITING)
            time.sleep(min(_TRY, seconds))
        with contextlib.suppress(OSError):  # a full disk: the journal reports it
            file.truncate(0)
            file.write(f"process {os.getpid()}".encode())
        yield


def _locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def in_the_cloud(
    cloud: Connection, run: str, user: str, host: str, warn: Callable[[str], None], *, seconds: float = WAIT
) -> Iterator[None]:
    """Hold the lock of a cloud between machines, and renew it. This machine's must be held: :func:`on_this_machine`.

    A user who may not create aggregates gets a warning, and no lock.

    :param warn: is called with warnings.
    :raises LockedError: if another run holds it.
    """

    def holder() -> LockHolder:
        return LockHolder(run=run, user=user, host=host, at=datetime.now(UTC), state=state)

    make_directory(directory())
    place = directory().stat()  # containers may have the machine's name, and another directory at the same path
    boot = read_text(_BOOT, 99) if _BOOT.exists() else ""  # copies of a machine may have its name and its machine-id
    state = hashlib.sha256(f"{host}:{place.st_dev}:{place.st_ino}:{boot}".encode()).hexdigest()[:16]
    try:
        aggregate = _taken(cloud, holder, warn, seconds)
    except Refused as error:
        if error.status != FORBIDDEN:
            raise
        warn("this user may not create aggregates: runs of other users and on other machines are not locked out")
        yield
        return
    over = threading.Event()
    renewal = threading.Thread(target=_renewed, args=(cloud, aggregate, holder, over), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        over.set()
        renewal.join()
        try:
            _delete(cloud, aggregate)
        except CloudError as error:
            warn(f"the lock stays until another run takes it over: {error.what}")


def _name(cloud: Connection, aggregate: int, holder: LockHolder) -> None:
    compute.change_aggregate(cloud, aggregate, "set_metadata", {"metadata": holder.to_metadata()})


def _delete(cloud: Connection, aggregate: int) -> None:
    with tolerating(MISSING):
        compute.delete_aggregate(cloud, aggregate)


def _taken(cloud: Connection, holder: Callable[[], LockHolder], warn: Callable[[str], None], seconds: float) -> int:
    end = time.monotonic() + seconds
    while True:
        aggregate = None
        try:
            with stopping(threading.Event()) as arrived, tolerating(CONFLICT):
                aggregate = compute.create_aggregate(cloud, LOCK)
                _name(cloud, aggregate, holder())
            if arrived:
                sys.exit(128 + arrived[0])
        except BaseException:  # without a name, it would lock out every run for a minute
            if aggregate is not None:
                with contextlib.suppress(CloudError):
                    _delete(cloud, aggregate)
            raise
        if aggregate is not None:
            return aggregate
        if (present := compute.lock(cloud)) is None:
            continue
        other = LockHolder.of(present)
        if other.is_stale or other.state == holder().state:
            warn(f"the lock of a run that no longer renews it is taken over: {other}")
            _delete(cloud, present.id)
            continue
        if time.monotonic() >= end:
            remedy = f"wait until it ends. If no such run exists: openstack aggregate delete {LOCK}"
            raise LockedError(f"another run changes this cloud: {other}", where=f"aggregate {LOCK}", remedy=remedy)
        warn(_WAITING)
        time.sleep(min(_TRY, seconds))


def _renewed(cloud: Connection, aggregate: int, holder: Callable[[], LockHolder], ended: threading.Event) -> None:
    while not ended.wait(RENEW):
        with contextlib.suppress(Exception):  # the next renewal is in five minutes, and the lock lasts for 15
            _name(cloud, aggregate, holder())

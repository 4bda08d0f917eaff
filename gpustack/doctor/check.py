"""A check of this machine: its state, what was seen, and the remedy."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpustack.errors import GpustackError


class State(enum.StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    NOT_CONFIGURED = "not configured"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check that was made.

    :ivar name: the part of this machine.
    :ivar seen: what was seen, without secrets.
    :ivar remedy: what to do; empty if nothing is to do.
    :ivar exit_code: that of a command which this would stop; 0 if it stops none.
    """

    name: str
    state: State
    seen: str
    remedy: str = ""
    exit_code: int = 0

    def to_dict(self) -> dict[str, str]:
        """The check as plain data."""
        return {"name": self.name, "state": self.state.value, "seen": self.seen, "remedy": self.remedy}


def ok(name: str, seen: str) -> Check:
    """A check without a problem."""
    return Check(name=name, state=State.OK, seen=seen)


def warning(name: str, seen: str, remedy: str) -> Check:
    """A check of something that some commands need."""
    return Check(name=name, state=State.WARNING, seen=seen, remedy=remedy)


def not_configured(name: str, seen: str, remedy: str) -> Check:
    """A check of something that nobody has set up."""
    return Check(name=name, state=State.NOT_CONFIGURED, seen=seen, remedy=remedy)


def failed(name: str, error: GpustackError) -> Check:
    """A check that ended with the error that a command would end with."""
    seen = f"{error.where}: {error.what}" if error.where else error.what
    return Check(name=name, state=State.ERROR, seen=seen, remedy=error.remedy or "", exit_code=error.exit_code)


def made(name: str, checks: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """The checks of one part; the error that ends them is one of them."""
    try:
        yield from checks()
    except GpustackError as error:
        yield failed(name, error)


def exit_code(checks: Iterable[Check]) -> int:
    """The code of the first check that failed; 0 if none did."""
    return next((check.exit_code for check in checks if check.state is State.ERROR), 0)

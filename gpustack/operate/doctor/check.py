"""The result of one check of this machine: its state, an observation, and the remedy."""

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpustack.base.errors import GpustackError


class State(enum.StrEnum):
    """The state of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    NOT_CONFIGURED = "not configured"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of one check.

    :ivar name: the part of this machine.
    :ivar seen: the observation, without secrets.
    :ivar remedy: the next step; empty if none is needed.
    :ivar exit_code: the exit code of a command that this would stop; 0 if it stops none.
    """

    name: str
    state: State
    seen: str
    remedy: str = ""
    exit_code: int = 0

    def to_dict(self) -> dict[str, str]:
        """The result as plain data for JSON."""
        return {"name": self.name, "state": self.state.value, "seen": self.seen, "remedy": self.remedy}


def ok(name: str, seen: str) -> Check:
    """A result without a problem."""
    return Check(name=name, state=State.OK, seen=seen)


def warning(name: str, seen: str, remedy: str) -> Check:
    """A problem for some commands only."""
    return Check(name=name, state=State.WARNING, seen=seen, remedy=remedy)


def not_configured(name: str, seen: str, remedy: str) -> Check:
    """A part that is not set up, which is not an error."""
    return Check(name=name, state=State.NOT_CONFIGURED, seen=seen, remedy=remedy)


def failed(name: str, error: GpustackError) -> Check:
    """A failed check, with the error that a command would raise."""
    seen = f"{error.where}: {error.what}" if error.where else error.what
    return Check(name=name, state=State.ERROR, seen=seen, remedy=error.remedy or "", exit_code=error.exit_code)


def made(name: str, checks: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """The results for one part; an error is turned into the last result."""
    try:
        yield from checks()
    except GpustackError as error:
        yield failed(name, error)


def exit_code(checks: Iterable[Check]) -> int:
    """The exit code of the first failed check; 0 if none failed."""
    return next((check.exit_code for check in checks if check.state is State.ERROR), 0)

"""What is done to a service and its guests: each step is one change, shown before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gpustack.operations import Operation


@dataclass(frozen=True, kw_only=True)
class DisableService(Operation):
    """Let no new guests come."""

    kind: ClassVar[str] = "disable_service"
    service: str
    host: str
    reason: str

    def describe(self) -> str:
        return f"disable nova-compute of {self.host}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class EnableService(Operation):
    """Let new guests come again."""

    kind: ClassVar[str] = "enable_service"
    service: str
    host: str

    def describe(self) -> str:
        return f"enable nova-compute of {self.host}"


@dataclass(frozen=True, kw_only=True)
class GuestStep(Operation):
    """A step on one guest.

    :param mark: metadata that is written before, with the last request until then
        (:data:`gpustack.maintenance.metadata.AFTER`).
    :param alone: whether it waits until nothing else is under way: of two guests that are moved at once, one can lose
        the device that both were promised, and Nova leaves it in ERROR.
    """

    server: str
    name: str
    mark: Mapping[str, str] | None = None
    alone: bool = False
    verb: ClassVar[str] = ""

    def describe(self) -> str:
        return f"{self.verb} {self.name} ({self.server})"


@dataclass(frozen=True, kw_only=True)
class Stop(GuestStep):
    """Shut a guest down."""

    kind: ClassVar[str] = "stop"
    verb: ClassVar[str] = "stop"


@dataclass(frozen=True, kw_only=True)
class Start(GuestStep):
    """Start a guest that gpustack stopped."""

    kind: ClassVar[str] = "start"
    verb: ClassVar[str] = "start"


@dataclass(frozen=True, kw_only=True)
class LiveMigrate(GuestStep):
    """Move a guest while it runs."""

    kind: ClassVar[str] = "live_migrate"
    verb: ClassVar[str] = "live-migrate"


@dataclass(frozen=True, kw_only=True)
class ColdMigrate(GuestStep):
    """Shut a guest down, move it, start it there."""

    kind: ClassVar[str] = "cold_migrate"
    verb: ClassVar[str] = "cold-migrate"


@dataclass(frozen=True, kw_only=True)
class Confirm(GuestStep):
    """Confirm a cold migration of gpustack's: until then the host that was left keeps the guest's devices and disk."""

    kind: ClassVar[str] = "confirm"
    verb: ClassVar[str] = "confirm the migration of"


@dataclass(frozen=True, kw_only=True)
class Forget(GuestStep):
    """Take marks of gpustack's off a guest.

    :param keys: the metadata that go.
    """

    keys: tuple[str, ...]
    kind: ClassVar[str] = "forget"
    verb: ClassVar[str] = "take gpustack's marks off"

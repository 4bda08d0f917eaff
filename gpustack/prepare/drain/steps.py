"""The steps on a service and its instances: each step is one change, shown before it is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gpustack.base.operations import Operation


@dataclass(frozen=True, kw_only=True)
class DisableService(Operation):
    """Disable nova-compute, so that no new instances are scheduled.

    :param reason: the text of the maintenance.
    """

    kind: ClassVar[str] = "disable_service"
    service: str
    host: str
    reason: str

    def describe(self) -> str:
        return f"disable nova-compute of {self.host}: maintenance ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class EnableService(Operation):
    """End the maintenance: nova-compute is enabled if no other reason keeps the host closed.

    :param left: the other reasons.
    """

    kind: ClassVar[str] = "enable_service"
    service: str
    host: str
    left: str = ""

    def describe(self) -> str:
        if self.left:
            return f"end the maintenance of {self.host}; host stays closed: {self.left}"
        return f"enable nova-compute of {self.host}"


@dataclass(frozen=True, kw_only=True)
class GuestStep(Operation):
    """A step on one instance.

    :param server: the id of the instance.
    :param mark: metadata to write before the step, together with the last request
        (:mod:`gpustack.cloud.marks`).
    :param alone: whether the step waits until nothing else is under way. If two instances are moved at the same time,
        one can lose the device that was promised to both, and ends in ERROR.
    :cvar result: the state of the instance afterwards, for the record.
    """

    server: str
    name: str
    mark: Mapping[str, str] | None = None
    alone: bool = False
    result: ClassVar[str] = ""

    @property
    def key(self) -> str:
        """The key under which a run records that it requested the step: ``KIND:SERVER``."""
        return f"{self.kind}:{self.server}"

    def describe(self) -> str:
        return f"{self.verb} {self.name} ({self.server})"


class Stop(GuestStep):
    """Shut down an instance."""

    kind: ClassVar[str] = "stop"
    result: ClassVar[str] = "SHUTOFF"


class Start(GuestStep):
    """Start an instance that gpustack stopped."""

    kind: ClassVar[str] = "start"
    result: ClassVar[str] = "ACTIVE"


class LiveMigrate(GuestStep):
    """Move an instance while it runs."""

    kind: ClassVar[str] = "live_migrate"
    verb: ClassVar[str] = "live-migrate"
    result: ClassVar[str] = "on another host"
    reversible: ClassVar[bool] = False


class ColdMigrate(GuestStep):
    """Shut down an instance, move it, and start it on the destination."""

    kind: ClassVar[str] = "cold_migrate"
    verb: ClassVar[str] = "cold-migrate"
    result: ClassVar[str] = "on another host, unconfirmed"
    reversible: ClassVar[bool] = False


class Confirm(GuestStep):
    """Confirm a cold migration of gpustack; until then the source keeps the instance's devices and disk."""

    kind: ClassVar[str] = "confirm"
    verb: ClassVar[str] = "confirm the migration of"
    result: ClassVar[str] = "migration confirmed"


@dataclass(frozen=True, kw_only=True)
class Forget(GuestStep):
    """Remove gpustack's metadata from an instance.

    :param keys: the metadata keys to remove.
    """

    keys: tuple[str, ...]
    kind: ClassVar[str] = "forget"
    verb: ClassVar[str] = "take gpustack's marks off"
    result: ClassVar[str] = "without gpustack's marks"

"""What Nova's API offers for a host in service, as the rest of this package sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpustack.maintenance.capacity import Amounts, Room
from gpustack.maintenance.model import Action, ComputeService, Ports, Server, ServerMigration


class ServiceApi(Protocol):
    """Each method is one request or one listing.

    Every method raises :class:`gpustack.cloudapi.Refused` or :class:`gpustack.cloudapi.Unanswered`.
    """

    def user(self) -> str:
        """The id of the user that is signed in; empty when it can't be known."""

    def services(self) -> tuple[ComputeService, ...]:
        """Every nova-compute service, of all cells."""

    def servers(self, host: str) -> tuple[Server, ...]:
        """The guests of a host, of all projects."""

    def unconfirmed(self) -> tuple[Server, ...]:
        """The guests, wherever they are, whose resize or cold migration waits for its confirmation."""

    def left(self, host: str) -> tuple[str, ...]:
        """The ids of guests that were moved from a host lately: Nova finds no guest by its metadata."""

    def server(self, server_id: str) -> Server | None:
        """One guest; None when there is none."""

    def migrations(self, host: str) -> tuple[ServerMigration, ...]:
        """Moves to or from a host that are not over."""

    def ports(self, host: str) -> Ports:
        """Which guests of a host have ports that are a device's. It raises nothing."""

    def needs(self, server_id: str) -> Amounts:
        """What a guest has allocated in Placement; nothing when that can't be known. It raises nothing."""

    def room(self, needs: Amounts) -> Room | None:
        """Where that is free on open hosts; None when that can't be known. It raises nothing."""

    def actions(self, server_id: str) -> tuple[Action, ...]:
        """What was asked of a guest, newest first."""

    def why_failed(self, server_id: str, request: str) -> str:
        """What Nova says of an action that did not work; empty when it says nothing."""

    def disable(self, service_id: str, reason: str) -> None:
        """Disable a service."""

    def enable(self, service_id: str) -> None:
        """Enable a service."""

    def mark(self, server_id: str, metadata: Mapping[str, str]) -> None:
        """Add metadata to a guest."""

    def unmark(self, server_id: str, key: str) -> None:
        """Remove metadata of a guest; one that is not there is no error."""

    def act(self, server_id: str, action: str) -> None:
        """Ask for ``stop``, ``start``, ``live_migrate``, ``cold_migrate`` or ``confirm``."""

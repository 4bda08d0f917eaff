"""The interface to Nova's API, Neutron and Placement that this package uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.placement import Amounts, Room
from gpustack.cloud.servers import Event, Migration, Server


class ServiceApi(Protocol):
    """The requests of this package, one request or listing for each method.

    Methods raise :class:`gpustack.cloud.session.Refused` or :class:`gpustack.cloud.session.Unanswered`, unless stated
    otherwise.
    """

    def user(self) -> str:
        """Return the id of the authenticated user; empty if unknown."""

    def services(self) -> tuple[Service, ...]:
        """Return every nova-compute service of all cells."""

    def servers(self, host: str) -> tuple[Server, ...]:
        """Return the instances of a host, of all projects."""

    def unconfirmed(self) -> tuple[Server, ...]:
        """Return the instances on any host whose resize or cold migration waits for confirmation."""

    def left(self, host: str) -> tuple[str, ...]:
        """Return the ids of instances with a recent migration from a host; Nova cannot search by metadata."""

    def server(self, server_id: str) -> Server | None:
        """Return one instance; None if it does not exist."""

    def migrations(self, host: str) -> tuple[Migration, ...]:
        """Return unfinished migrations to or from a host."""

    def ports(self, host: str) -> Ports:
        """Return the instances of a host with ports on devices. Does not raise."""

    def needs(self, server_id: str) -> Amounts:
        """Return what an instance has allocated in Placement; empty if unknown. Does not raise."""

    def room(self, needs: Amounts) -> Room | None:
        """Return the hosts with room for these amounts; None if unknown. Does not raise."""

    def actions(self, server_id: str) -> tuple[Event, ...]:
        """Return the instance actions of an instance, newest first."""

    def why_failed(self, server_id: str, request: str) -> str:
        """Return Nova's reason for the failure of an action; empty if there is none.

        :param request: the request id of the action.
        """

    def disable(self, service_id: str, reason: str) -> None:
        """Disable a service with this reason."""

    def enable(self, service_id: str) -> None:
        """Enable a service."""

    def mark(self, server_id: str, metadata: Mapping[str, str]) -> None:
        """Add metadata to an instance."""

    def unmark(self, server_id: str, key: str) -> None:
        """Remove a metadata key of an instance; a missing key is not an error."""

    def act(self, server_id: str, action: str) -> None:
        """Request an action.

        :param action: ``stop``, ``start``, ``live_migrate``, ``cold_migrate``, ``confirm``, ``shelve``,
            ``shelve_offload`` or ``unshelve``.
        """

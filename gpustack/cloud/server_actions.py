"""Act on instances and their nova-compute with python-novaclient, as the drain of a host and reclaiming need it.

openstacksdk authenticates (clouds.yaml, ``OS_*``) and finds the compute endpoint; python-novaclient's managers send the
writes in the same session, at the microversion that shows a cell that does not answer: an older Nova omits its
instances. The reads are those of :mod:`gpustack.cloud.servers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from gpustack.base.errors import CloudError
from gpustack.cloud import Connection, closed, compute, placement, servers
from gpustack.cloud.microversions import SILENT_CELLS
from gpustack.cloud.network import Ports, ports_of
from gpustack.cloud.placement import Amounts, Room
from gpustack.cloud.servers import Event, Migration, Server
from gpustack.cloud.session import MISSING, newest, tolerating, translated_errors

if TYPE_CHECKING:
    from novaclient.v2.client import Client

_LATELY = timedelta(days=7)
_ACTION = 90.0
"""Seconds for the answer to an action: nova-api waits up to 60 for other services (``[DEFAULT] rpc_response_timeout``),
as before a live migration."""

_METHODS = {"cold_migrate": "migrate", "confirm": "confirm_resize"}
"""The methods of novaclient with another name than the action."""


class ServiceCloud:
    """The requests of a drain and of reclaiming, one request or listing for each method.

    Methods raise :class:`gpustack.cloud.session.Refused` or :class:`gpustack.cloud.session.Unanswered`, unless stated
    otherwise.

    :raises CloudError: if the compute API is older than microversion 2.69, or cannot be found.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        newest(connection, SILENT_CELLS, doing="take a host out of service")
        with translated_errors("find the compute service"):
            endpoint = connection.compute.get_endpoint()
        self._nova = _client(connection, endpoint)
        self._unfinished: dict[str, dict[str, Migration]] = {}

    def user(self) -> str:
        """Return the id of the authenticated user; empty if unknown."""
        with translated_errors("sign in"):
            return str(self.connection.session.get_user_id() or "")

    def services(self) -> tuple[compute.Service, ...]:
        """Return every nova-compute service of all cells."""
        return compute.services(self.connection)

    def servers(self, host: str) -> tuple[Server, ...]:
        """Return the instances of a host, of all projects."""
        # Instances of a cell that does not answer have no host here; their host's own cell has listed its service.
        return tuple(server for server in self._servers(f"host={host}") if server.host == host)

    def unconfirmed(self) -> tuple[Server, ...]:
        """Return the instances on any host whose resize or cold migration waits for confirmation."""
        return self._servers("status=VERIFY_RESIZE")

    def left(self, host: str) -> tuple[str, ...]:
        """Return the ids of instances with a recent migration from a host; Nova cannot search by metadata."""
        moves = [move for move in self._migrations(host, since=_lately()) if move.source == host]
        return tuple(dict.fromkeys(move.server for move in moves))

    def server(self, server_id: str) -> Server | None:
        """Return one instance; None if it does not exist."""
        return servers.server(self.connection, server_id)

    def migrations(self, host: str) -> tuple[Migration, ...]:
        """Return unfinished migrations to or from a host."""
        # The first read has all migrations: an unfinished one can be old, and changes-since omits those never updated.
        known = self._unfinished.get(host)
        changed = self._migrations(host, since="" if known is None else _lately())
        entries = {**(known or {}), **{move.uuid: move for move in changed}}
        moves = {uuid: move for uuid, move in entries.items() if move.unfinished}
        self._unfinished[host] = moves
        pairs = [(move, self.server(move.server)) for move in moves.values()]
        # A confirmation under way sets no task of the instance.
        return tuple(
            replace(move, idle=not (server.task or move.status == "confirming"))
            for move, server in pairs
            if server is not None
        )

    def ports(self, host: str) -> Ports:
        """Return the instances of a host with ports on devices. Does not raise."""
        return ports_of(self.connection, host)

    def needs(self, server_id: str) -> Amounts:
        """Return what an instance has allocated in Placement; empty if unknown. Does not raise."""
        with suppress(CloudError):
            return placement.needs_of(self.connection, server_id)
        return {}  # the scheduler still decides

    def room(self, needs: Amounts) -> Room | None:
        """Return the hosts with room for these amounts; None if unknown. Does not raise."""
        with suppress(CloudError):
            return placement.room_of(self.connection, needs)
        return None

    def qemu_versions(self) -> dict[str, str]:
        """Return the versions of QEMU that nova-computes in service report, by host. Does not raise."""
        with suppress(CloudError):
            known = compute.hypervisors(self.connection)
            return {entry.host: entry.qemu for entry in known if entry.qemu and entry.up}
        return {}

    def actions(self, server_id: str) -> tuple[Event, ...]:
        """Return the instance actions of an instance, newest first."""
        return tuple(servers.actions(self.connection, server_id))

    def why_failed(self, server_id: str, request: str) -> str:
        """Return Nova's reason for the failure of an action; empty if there is none.

        :param request: the request id of the action.
        """
        return servers.why_failed(self.connection, server_id, request)

    def close(self, host: str, text: str) -> None:
        """Close a host for maintenance, with this text."""
        closed.set_reason(self.connection, host, closed.MAINTENANCE, text)

    def reopen(self, host: str) -> None:
        """End the maintenance of a host."""
        closed.set_reason(self.connection, host, closed.MAINTENANCE, None)

    def mark(self, server_id: str, metadata: Mapping[str, str]) -> None:
        """Add metadata to an instance."""
        # Not servers.set_meta(): it sets every metadata key of the tenant as an attribute, and fails on "_info".
        with translated_errors("write metadata of an instance"):
            self._nova.client.post(f"/servers/{server_id}/metadata", body={"metadata": dict(metadata)})

    def unmark(self, server_id: str, key: str) -> None:
        """Remove a metadata key of an instance; a missing key is not an error."""
        with tolerating(MISSING), translated_errors("remove metadata of an instance"):
            self._nova.servers.delete_meta(server_id, [key])

    def act(self, server_id: str, action: str) -> None:
        """Request an action.

        :param action: ``stop``, ``start``, ``live_migrate``, ``cold_migrate``, ``confirm``, ``shelve``,
            ``shelve_offload`` or ``unshelve``.
        """
        from gpustack.cloud.time_limits import patience

        nova = self._nova.servers
        with translated_errors(f"{action.replace('_', '-')} an instance"), patience(_ACTION):
            method = getattr(nova, _METHODS.get(action, action))
            method(server_id, **({"host": None, "block_migration": "auto"} if action == "live_migrate" else {}))

    def _migrations(self, host: str, since: str) -> Iterator[Migration]:
        """Yield the migrations from and to a host.

        :param since: only those that changed since then; empty for all, which Nova keeps indefinitely.
        """
        changed = f"&changes-since={since}" if since else ""
        return chain.from_iterable(servers.migrations(self.connection, f"host={host}{changed}"))

    def _servers(self, query: str) -> tuple[Server, ...]:
        """Return instances of all projects, without those of a cell that does not answer."""
        listed = servers.matching(self.connection, query)
        if listed.hidden:
            what = "the API does not show the extra specs of flavors, so instances with a device are unknown"
            raise CloudError(what, remedy=servers.POLICY)
        return listed.servers


def _client(connection: Connection, endpoint: str | None) -> Client:
    """Return a novaclient that uses the SDK's session."""
    from novaclient import client

    # novaclient caches the name of each listed server in ~/.novaclient; a directory below a device can't be created.
    os.environ["NOVACLIENT_UUID_CACHE_DIR"] = os.devnull
    return client.Client(SILENT_CELLS.number, session=connection.session, endpoint_override=endpoint)


def _lately() -> str:
    return (datetime.now(UTC) - _LATELY).strftime("%Y-%m-%dT%H:%M:%SZ")

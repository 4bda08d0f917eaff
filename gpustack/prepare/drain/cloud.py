"""Nova's API through python-novaclient; :mod:`.ports` and :mod:`.placement` have the other requests of this package.

openstacksdk authenticates (clouds.yaml, ``OS_*``) and finds the compute endpoint; python-novaclient's managers send the
requests in the same session. They use microversion 2.84 (Victoria), which returns the error of a failed action, or 2.69
(Stein) on older clouds. 2.69 is the first that reports a cell that does not answer; earlier ones omit its instances.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError
from gpustack.cloud.session import Unanswered, compute_of, numbers, refusal, translated_errors
from gpustack.prepare.drain.capacity import Amounts, Room
from gpustack.prepare.drain.model import Action, ComputeService, Ports, Server, ServerMigration, is_unfinished
from gpustack.prepare.drain.placement import needs_of, room_of
from gpustack.prepare.drain.ports import ports_of
from gpustack.spec.extra_specs import ALIAS, alias_names

if TYPE_CHECKING:
    from novaclient.v2.client import Client
    from openstack.connection import Connection

_OLDEST, _NEWEST = "2.69", "2.84"
_FORBIDDEN = "services and others' guests are for administrators: use a cloud of clouds.yaml with the role admin"
_LATELY = timedelta(days=7)
_DEVICE_CLASS = re.compile(r"resources[\w-]*:(VGPU|CUSTOM_[A-Z0-9_]+)")
_READ_RETRIES = 3
"""Retries of read requests: a drain takes up to an hour and polls every few seconds."""


class ServiceCloud:
    """:class:`gpustack.prepare.drain.api.ServiceApi` of a real cloud.

    :raises CloudError: if the compute API is older than microversion 2.69, or cannot be found.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        compute, self._where, newest = compute_of(connection)
        if newest and newest < numbers(_OLDEST):
            raise CloudError(
                f"the compute API ends at microversion {'.'.join(map(str, newest))}; {_OLDEST} (Stein) is needed",
                where=self._where,
                remedy="leave gpustack_cloud out, and empty the host by hand",
            )
        version = _NEWEST if not newest or newest >= numbers(_NEWEST) else _OLDEST
        with translated_errors("find the compute service"):
            endpoint = compute.get_endpoint()
        self._read = _client(connection, version, endpoint, retries=_READ_RETRIES)
        self._write = _client(connection, version, endpoint, retries=0)
        self._unfinished: dict[str, dict[str, Mapping[str, Any]]] = {}

    def user(self) -> str:
        with translated_errors("sign in"):
            return str(self._connection.session.get_user_id() or "")

    def services(self) -> tuple[ComputeService, ...]:
        with self._asking("list services"):
            return tuple(_service(entry.to_dict()) for entry in self._read.services.list(binary="nova-compute"))

    def servers(self, host: str) -> tuple[Server, ...]:
        # Instances of a cell that does not answer have no host here; their host's own cell has listed its service.
        return tuple(server for server in self._servers({"host": host}) if server.host == host)

    def unconfirmed(self) -> tuple[Server, ...]:
        return self._servers({"status": "VERIFY_RESIZE"})

    def left(self, host: str) -> tuple[str, ...]:
        moves = [entry for entry in self._migrations(host, since=_lately()) if entry["source_compute"] == host]
        return tuple(dict.fromkeys(str(entry["instance_uuid"]) for entry in moves))

    def server(self, server_id: str) -> Server | None:
        with self._asking("read an instance"), _missing_ok():
            return _server(self._read.servers.get(server_id).to_dict())
        return None

    def migrations(self, host: str) -> tuple[ServerMigration, ...]:
        # The first read has all migrations: an unfinished one can be old, and changes_since omits those never updated.
        known = self._unfinished.get(host)
        changed = self._migrations(host, since=None if known is None else _lately())
        entries = {**(known or {}), **{str(entry["uuid"]): entry for entry in changed}}
        moves = {uuid: entry for uuid, entry in entries.items() if is_unfinished(str(entry.get("status")))}
        self._unfinished[host] = moves
        pairs = [(entry, self.server(entry["instance_uuid"])) for entry in moves.values()]
        return tuple(self._migration(entry, server) for entry, server in pairs if server is not None)

    @staticmethod
    def _migration(entry: Mapping[str, Any], server: Server) -> ServerMigration:
        # A confirmation under way sets no task of the instance.
        busy = server.task is not None or entry["status"] == "confirming"
        return ServerMigration(
            server=str(entry["instance_uuid"]),
            kind=str(entry.get("migration_type") or "migration"),
            status=str(entry["status"]),
            source=str(entry.get("source_compute") or ""),
            target=str(entry.get("dest_compute") or ""),
            idle=not busy,
        )

    def ports(self, host: str) -> Ports:
        return ports_of(self._connection, host)

    def needs(self, server_id: str) -> Amounts:
        return needs_of(self._connection, server_id)

    def room(self, needs: Amounts) -> Room | None:
        return room_of(self._connection, needs)

    def actions(self, server_id: str) -> tuple[Action, ...]:
        with self._asking("read the actions of an instance"), _missing_ok():
            entries = [entry.to_dict() for entry in self._read.instance_action.list(server_id)]
            return tuple(
                Action(
                    name=str(entry["action"]), request=str(entry["request_id"]), user=str(entry.get("user_id") or "")
                )
                for entry in entries
            )
        return ()

    def why_failed(self, server_id: str, request: str) -> str:
        with self._asking("read the result of an action"), _missing_ok():
            events = self._read.instance_action.get(server_id, request).to_dict().get("events") or []
            failed = [event for event in events if str(event.get("result")).lower() == "error"]
            details = [str(event.get("details") or "") for event in failed]
            return next(filter(None, details), "Nova reports only that it failed" if failed else "")
        return ""

    def disable(self, service_id: str, reason: str) -> None:
        with self._asking("disable nova-compute"):
            self._write.services.disable_log_reason(service_id, reason)

    def enable(self, service_id: str) -> None:
        with self._asking("enable nova-compute"):
            self._write.services.enable(service_id)

    def mark(self, server_id: str, metadata: Mapping[str, str]) -> None:
        # Not servers.set_meta(): it sets every metadata key of the tenant as an attribute, and fails on "_info".
        with self._asking("write metadata of an instance"):
            self._write.client.post(f"/servers/{server_id}/metadata", body={"metadata": dict(metadata)})

    def unmark(self, server_id: str, key: str) -> None:
        with self._asking("remove metadata of an instance"), _missing_ok():
            self._write.servers.delete_meta(server_id, [key])

    def act(self, server_id: str, action: str) -> None:
        servers = self._write.servers
        with self._asking(f"{action.replace('_', '-')} an instance"):
            match action:
                case "stop":
                    servers.stop(server_id)
                case "start":
                    servers.start(server_id)
                case "live_migrate":
                    servers.live_migrate(server_id, host=None, block_migration="auto")
                case "cold_migrate":
                    servers.migrate(server_id)
                case "confirm":
                    servers.confirm_resize(server_id)
                case "shelve":
                    servers.shelve(server_id)
                case "shelve_offload":
                    servers.shelve_offload(server_id)
                case "unshelve":
                    servers.unshelve(server_id)
                case _:
                    raise AssertionError(action)

    def _migrations(self, host: str, since: str | None) -> Iterator[Mapping[str, Any]]:
        """Yield the migrations from and to a host.

        :param since: only those that changed since then; None for all, which Nova keeps indefinitely.
        """
        marker: str | None = None
        with self._asking("list migrations"):
            while page := self._read.migrations.list(host=host, changes_since=since, marker=marker):
                yield from (entry.to_dict() for entry in page)
                marker = str(page[-1].uuid)

    def _servers(self, query: Mapping[str, str]) -> tuple[Server, ...]:
        """Return instances of all projects; those of a cell that does not answer have the status ``UNKNOWN``."""
        with self._asking("list instances"):
            entries = self._read.servers.list(search_opts={**query, "all_tenants": "1"}, limit=-1)
            return tuple(_server(entry.to_dict()) for entry in entries)

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        """Translate novaclient's exceptions into those of :mod:`gpustack.cloud.session`."""
        import novaclient.exceptions

        with translated_errors(doing):
            try:
                yield
            except novaclient.exceptions.ClientException as error:
                raise refusal(error.code, str(error.message), doing, self._where, forbidden=_FORBIDDEN) from error
            except (TypeError, KeyError, AttributeError) as error:
                raise Unanswered(
                    f"can't {doing}: the answer is not one of Nova's",
                    where=self._where,
                    remedy="check which service answers at this address",
                ) from error


def _client(connection: Connection, version: str, endpoint: str | None, *, retries: int) -> Client:
    """Return a novaclient that uses the SDK's session."""
    from novaclient import client

    # novaclient caches the name of each listed server in ~/.novaclient; a directory below a device can't be created.
    os.environ["NOVACLIENT_UUID_CACHE_DIR"] = os.devnull
    return client.Client(
        version, session=connection.session, endpoint_override=endpoint, connect_retries=retries or None
    )


@contextlib.contextmanager
def _missing_ok() -> Iterator[None]:
    """Leave the block if the instance is gone."""
    import novaclient.exceptions

    with contextlib.suppress(novaclient.exceptions.NotFound):
        yield


def _lately() -> str:
    return (datetime.now(UTC) - _LATELY).strftime("%Y-%m-%dT%H:%M:%SZ")


def _service(entry: Mapping[str, Any]) -> ComputeService:
    return ComputeService(
        id=str(entry.get("id") or ""),
        host=str(entry["host"]),
        enabled=entry.get("status") == "enabled",
        up=entry.get("state") == "up" and not entry.get("forced_down"),
        reason=str(entry.get("disabled_reason") or ""),
        forced_down=bool(entry.get("forced_down")),
        seen=str(entry.get("updated_at") or ""),
    )


def _server(entry: Mapping[str, Any]) -> Server:
    task = entry.get("OS-EXT-STS:task_state")
    flavor = entry.get("flavor") or {}
    if entry.get("status", "UNKNOWN") != "UNKNOWN" and "extra_specs" not in flavor:
        raise CloudError(
            "the API does not show the extra specs of flavors, so instances with a device are unknown",
            remedy="the policy os_compute_api:os-flavor-extra-specs:index does not let this user read them",
        )
    return Server(
        id=str(entry["id"]),
        name=str(entry.get("name") or ""),
        host=str(entry.get("OS-EXT-SRV-ATTR:host") or ""),
        status=str(entry.get("status") or "UNKNOWN"),
        task=str(task) if task else None,
        power=int(entry.get("OS-EXT-STS:power_state") or 0),
        locked=bool(entry.get("locked")),
        devices=_devices(flavor.get("extra_specs") or {}),
        metadata={str(key): str(value) for key, value in (entry.get("metadata") or {}).items()},
    )


def _devices(extra_specs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parts of a flavor that need devices of a host: PCI aliases, resource classes, accelerator profiles.

    A custom resource class can be that of mediated devices (``mdev_class``); nothing in the API shows which ones are.
    """
    devices: dict[str, None] = {}
    for key, value in extra_specs.items():
        if key == ALIAS:
            devices.update(dict.fromkeys(alias_names(value)))
        elif match := _DEVICE_CLASS.fullmatch(key):
            devices[match[1]] = None
        elif key == "accel:device_profile":
            devices[value] = None
    return tuple(devices)

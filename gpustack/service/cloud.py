"""Nova's API over openstacksdk; with :mod:`.ports` and :mod:`.placement`, all of this package that talks to a cloud.

Requests go through the compute proxy of the SDK's connection, at microversion 2.69 (Stein): the first that says so when
a cell does not answer, where older ones leave its guests out. python-novaclient has the same requests over the same
session, and nothing that is missing here, so there is one client and not two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpustack.cloudapi import compute_of, numbers, raise_refusal, told
from gpustack.errors import CloudError
from gpustack.service.model import Action, Migration, Ports, Server, Service
from gpustack.service.placement import needs_of, room_of
from gpustack.service.ports import ports_of
from gpustack.service.room import Amounts, Room

if TYPE_CHECKING:
    from openstack.connection import Connection

_VERSION = "2.69"
_DETAILS = "2.84"
_FORBIDDEN = "services and others' guests are for administrators: use a cloud of clouds.yaml with the role admin"
_NOT_FOUND = 404
_OVER = frozenset({"confirmed", "reverted", "failed", "completed", "cancelled", "done", "error", "finished"})
"""Where nothing moves any more; what is ``finished`` waits for its confirmation."""
_ACTIONS: Mapping[str, Mapping[str, Any]] = {
    "stop": {"os-stop": None},
    "start": {"os-start": None},
    "live_migrate": {"os-migrateLive": {"host": None, "block_migration": "auto"}},
    "cold_migrate": {"migrate": None},
    "confirm": {"confirmResize": None},
}
_LATELY = timedelta(days=7)
_RETRIES = 3
"""Of requests that only read: a drain may take an hour, and asks every few seconds."""


class Cloud:
    """:class:`gpustack.service.api.ServiceApi` of a real cloud."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._compute, self._where, newest = compute_of(connection)
        if newest and newest < numbers(_VERSION):
            raise CloudError(
                f"the compute API ends at microversion {'.'.join(map(str, newest))}; {_VERSION} (Stein) is needed",
                where=self._where,
                remedy="leave gpustack_cloud out, and empty the host by hand",
            )
        self._detailed = not newest or newest >= numbers(_DETAILS)

    def user(self) -> str:
        with told("sign in"):
            return str(self._connection.session.get_user_id() or "")

    def services(self) -> tuple[Service, ...]:
        answer = self._call("GET", "/os-services", "list services", params={"binary": "nova-compute"})
        return tuple(_service(entry) for entry in answer["services"])

    def servers(self, host: str) -> tuple[Server, ...]:
        # Guests of a cell that does not answer have no host here; the host's own cell has told of its service.
        return tuple(one for one in self._servers({"host": host}) if one.host == host)

    def unconfirmed(self) -> tuple[Server, ...]:
        return tuple(self._servers({"status": "VERIFY_RESIZE"}))

    def left(self, host: str) -> tuple[str, ...]:
        found = [one for one in self._migrations(host) if one["source_compute"] == host]
        return tuple(dict.fromkeys(str(one["instance_uuid"]) for one in found))

    def server(self, server_id: str) -> Server | None:
        answer = self._call("GET", f"/servers/{server_id}", "read a guest", missing_ok=True)
        return _server(answer["server"]) if answer else None

    def migrations(self, host: str) -> tuple[Migration, ...]:
        found = [one for one in self._migrations(host) if str(one.get("status")).lower() not in _OVER]
        pairs = [(one, self.server(one["instance_uuid"])) for one in found]
        return tuple(self._migration(one, server) for one, server in pairs if server is not None)

    @staticmethod
    def _migration(entry: Mapping[str, Any], server: Server) -> Migration:
        # Nothing but the migration itself says that a confirmation is under way.
        busy = server.task is not None or entry["status"] == "confirming"
        return Migration(
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
        path = f"/servers/{server_id}/os-instance-actions"
        answer = self._call("GET", path, "read what was asked of a guest", missing_ok=True)
        entries = answer["instanceActions"] if answer else []
        return tuple(
            Action(name=str(one["action"]), request=str(one["request_id"]), user=str(one.get("user_id") or ""))
            for one in entries
        )

    def why_failed(self, server_id: str, request: str) -> str:
        path = f"/servers/{server_id}/os-instance-actions/{request}"
        version = _DETAILS if self._detailed else _VERSION
        answer = self._call("GET", path, "read what became of an action", missing_ok=True, microversion=version)
        events = answer["instanceAction"].get("events") or [] if answer else []
        told_of = [str(one.get("details") or "") for one in events if str(one.get("result")).lower() == "error"]
        return next((text for text in told_of if text), "Nova says only that it failed" if told_of else "")

    def disable(self, service_id: str, reason: str) -> None:
        body = {"status": "disabled", "disabled_reason": reason}
        self._call("PUT", f"/os-services/{service_id}", "disable nova-compute", json=body)

    def enable(self, service_id: str) -> None:
        self._call("PUT", f"/os-services/{service_id}", "enable nova-compute", json={"status": "enabled"})

    def mark(self, server_id: str, metadata: Mapping[str, str]) -> None:
        body = {"metadata": dict(metadata)}
        self._call("POST", f"/servers/{server_id}/metadata", "mark a guest", json=body)

    def unmark(self, server_id: str, key: str) -> None:
        path = f"/servers/{server_id}/metadata/{key}"
        self._call("DELETE", path, "take a mark off a guest", missing_ok=True)

    def act(self, server_id: str, action: str) -> None:
        doing = f"{action.replace('_', '-')} a guest"
        self._call("POST", f"/servers/{server_id}/action", doing, json=_ACTIONS[action])

    def _migrations(self, host: str) -> Iterator[Mapping[str, Any]]:
        """Those that something became of lately: what moves is written anew all the time; old ones stay for ever."""
        lately = (datetime.now(UTC) - _LATELY).strftime("%Y-%m-%dT%H:%M:%SZ")
        marker: str | None = None
        while True:
            page = {"host": host, "changes-since": lately, **({"marker": marker} if marker else {})}
            answer = self._call("GET", "/os-migrations", "list migrations", params=page)
            yield from answer["migrations"]
            if not answer.get("migrations_links"):
                return
            marker = str(answer["migrations"][-1]["uuid"])

    def _servers(self, query: Mapping[str, str]) -> Iterator[Server]:
        """All pages; a cell that does not answer has its guests in them as ``UNKNOWN``."""
        marker: str | None = None
        while True:
            page = {**query, "all_tenants": "1", **({"marker": marker} if marker else {})}
            answer = self._call("GET", "/servers/detail", "list guests", params=page)
            yield from (_server(entry) for entry in answer["servers"])
            if not answer["servers"] or not any(
                link.get("rel") == "next" for link in answer.get("servers_links") or ()
            ):
                return
            marker = str(answer["servers"][-1]["id"])

    def _call(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        microversion: str = _VERSION,
        missing_ok: bool = False,
        **body: Any,  # noqa: ANN401 - requests' own
    ) -> Any:  # noqa: ANN401 - JSON
        retries: dict[str, Any] = {"connect_retries": _RETRIES} if method == "GET" else {}
        with told(doing):
            answer = self._compute.request(path, method, microversion=microversion, raise_exc=False, **retries, **body)
            if missing_ok and answer.status_code == _NOT_FOUND:
                return None
            raise_refusal(answer, doing, self._where, forbidden=_FORBIDDEN)
            content = answer.content if method == "GET" else None
            return answer.json() if content else None


def _service(entry: Mapping[str, Any]) -> Service:
    return Service(
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
            "the API does not show the extra specs of guests' flavors, which tell the guests with a device",
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
    """What of a flavor ties a guest to devices of its host."""
    found: dict[str, None] = {}
    for key, value in extra_specs.items():
        if key == "pci_passthrough:alias":
            found.update(dict.fromkeys(one.partition(":")[0].strip() for one in value.split(",") if one.strip()))
        elif key.startswith("resources") and key.endswith(":VGPU"):
            found["VGPU"] = None
        elif key == "accel:device_profile":
            found[value] = None
    return tuple(found)

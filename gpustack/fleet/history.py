"""Read what happened to an instance: its actions and its migrations, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError
from gpustack.fleet.compute import MIGRATIONS, moment
from gpustack.fleet.requests import get, pages, well_formed
from gpustack.prepare.drain.model import is_unfinished

if TYPE_CHECKING:
    from openstack.connection import Connection

_ACTIONS = "2.58"
"""The first microversion with the time of an action's last event (Queens)."""
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Event:
    """An action of an instance, or a migration.

    :ivar at: when it began, naive UTC; None if unknown.
    :ivar what: the action (``create``), or the kind of migration with its status.
    :ivar failed: whether the action failed.
    :ivar request: the id of the request that began the action.
    :ivar unfinished: whether it is a migration on which Nova still works.
    """

    at: datetime | None
    server: str
    what: str
    user: str = ""
    source: str = ""
    target: str = ""
    failed: bool = False
    request: str = ""
    unfinished: bool = False

    def to_dict(self) -> dict[str, object]:
        """The event as plain data."""
        return {
            "at": f"{self.at:%FT%TZ}" if self.at else None,
            "instance": self.server,
            "event": f"{self.what} (failed)" if self.failed else self.what,
            "user": self.user or None,
            "source": self.source or None,
            "target": self.target or None,
        }


def history(cloud: Connection, server: str) -> tuple[tuple[Event, ...], str]:
    """Return the latest events of an instance, and why some are missing (empty if none is)."""
    events: list[Event] = []
    missing = ""
    for read in (actions, migrations):
        try:
            events += read(cloud, server)
        except CloudError as error:
            missing = error.what
    return tuple(sorted(events, key=lambda event: event.at or datetime.min, reverse=True)[:_SHOWN]), missing  # noqa: DTZ901


def actions(cloud: Connection, server: str) -> list[Event]:
    """Return the actions of an instance, newest first.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read the actions of an instance"
    content = get(cloud, "compute", f"/servers/{server}/os-instance-actions", doing, version=_ACTIONS)
    with well_formed(doing):
        return [
            Event(
                at=moment(entry.get("start_time")),
                server=server,
                what=str(entry["action"]),
                user=str(entry.get("user_id") or ""),
                failed=bool(entry.get("message")),
                request=str(entry.get("request_id") or ""),
            )
            for entry in content["instanceActions"]
        ]


def migrations(cloud: Connection, server: str) -> Iterator[Event]:
    """Yield the migrations of an instance.

    :raises CloudError: if Nova cannot be reached or refuses.
    """
    doing = "read the migrations of an instance"
    for page in pages(cloud, f"/os-migrations?instance_uuid={server}", "migrations", doing, version=MIGRATIONS):
        with well_formed(doing):
            yield from [_move(server, entry) for entry in page]


def _move(server: str, entry: Mapping[str, Any]) -> Event:
    return Event(
        at=moment(entry.get("created_at")),
        server=server,
        what=f"{entry.get('migration_type') or 'migration'}: {entry['status']}",
        source=str(entry.get("source_compute") or ""),
        target=str(entry.get("dest_compute") or ""),
        unfinished=is_unfinished(str(entry["status"])),
    )

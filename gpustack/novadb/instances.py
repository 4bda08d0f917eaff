"""Read what the owners of devices are: project, user, flavor and state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.owners import batches
from gpustack.novadb.values import DAMAGE, UNREADABLE, parsed


@dataclass(frozen=True, kw_only=True)
class InstanceRecord:
    """A live instance of a cell.

    :ivar uuid: in lower case.
    :ivar flavor: the name of its flavor; empty if it is unreadable.
    :ivar extra_specs: those of its flavor.
    :ivar launched_at: naive UTC; None if it is missing or unreadable.
    """

    uuid: str
    name: str
    project: str
    user: str
    host: str
    node: str
    vm_state: str
    task_state: str | None
    flavor: str
    extra_specs: Mapping[str, object]
    launched_at: datetime | None


def records(connection: sa.Connection, uuids: Iterable[str]) -> Iterator[InstanceRecord]:
    """Yield the live instances of the cell with these uuids, which are in lower case."""
    table, extra = tables.instances.c, tables.instance_extra.c
    of_instance = (extra.instance_uuid == table.uuid) & (extra.deleted == table.deleted)
    query = sa.select(
        *(table.uuid, table.display_name, table.project_id, table.user_id, table.host, table.node),
        *(table.vm_state, table.task_state, table.launched_at, extra.flavor),
    ).select_from(tables.instances.join(tables.instance_extra, of_instance, isouter=True))
    for batch in batches(sorted(written for uuid in uuids for written in {uuid, uuid.upper()})):
        for row in connection.execute(query.where(table.uuid.in_(batch), table.deleted == 0)).mappings():
            yield _record(row)


def _record(row: Mapping[Any, Any]) -> InstanceRecord:
    flavor, specs = _flavor(row["flavor"])
    launched_at = row["launched_at"]
    return InstanceRecord(
        uuid=str(row["uuid"]).lower(),
        name=str(row["display_name"] or ""),
        project=str(row["project_id"] or ""),
        user=str(row["user_id"] or ""),
        host=str(row["host"] or ""),
        node=str(row["node"] or ""),
        vm_state=str(row["vm_state"] or ""),
        task_state=row["task_state"],
        flavor=flavor,
        extra_specs=specs,
        launched_at=None if launched_at is UNREADABLE else launched_at,
    )


def _flavor(text: object) -> tuple[str, Mapping[str, object]]:
    """The name and the extra specs of ``instance_extra.flavor`` (a serialized object)."""
    try:
        data = parsed(str(text or ""))["cur"]["nova_object.data"]
        return str(data["name"]), dict(data["extra_specs"])
    except DAMAGE:
        return "", {}

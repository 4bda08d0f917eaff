"""Read instances of one cell by their uuids."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.model import DAMAGE, UNREADABLE, Instance, parsed

# Few round trips, and below every database's limit of parameters (SQLite before 3.32: 999).
BATCH = 500
Item = TypeVar("Item")


def batches(items: Iterable[Item]) -> Iterator[Sequence[Item]]:
    """Yield items in batches for one ``IN (…)`` each."""
    ordered = list(items)
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]


def spellings(uuids: Iterable[str]) -> Iterator[str]:
    """Yield each uuid in lower and in upper case: only MySQL ignores case."""
    return (spelling for uuid in uuids for spelling in {uuid, uuid.upper()})


def read_instances(connection: sa.Connection, uuids: Iterable[str], cell: str) -> dict[str, Instance]:
    """Return the instances with these uuids in one cell, including deleted ones."""
    columns = instance_columns(connection)
    instances: dict[str, Instance] = {}
    for batch in batches(spellings(uuids)):
        query = sa.select(*columns).where(tables.instances.c.uuid.in_(batch))
        for row in connection.execute(query):
            known = instance(row, cell)
            instances[known.uuid] = known
    return instances


INSTANCE = (
    *("uuid", "host", "node", "vm_state", "task_state", "deleted", "hidden", "display_name"),
    *("updated_at", "deleted_at"),
)


def instance_columns(connection: sa.Connection) -> list[sa.ColumnElement[Any]]:
    """Return the columns of ``instances`` in the order of :data:`INSTANCE`; NULL for missing ones."""
    present = {column.name: column for column in tables.columns(connection, tables.instances)}
    return [present.get(name, sa.null().label(name)) for name in INSTANCE]


def instance(row: Sequence[Any], cell: str) -> Instance:
    """Convert a row of ``instances``, with its columns in the order of :data:`INSTANCE`."""
    known = dict(zip(INSTANCE, row, strict=True))
    known |= {"uuid": known["uuid"].lower(), "deleted": known["deleted"] or 0, "hidden": bool(known["hidden"])}
    moment = _later(known.pop("updated_at"), known.pop("deleted_at"))
    return Instance(**known, cell=cell, updated_at=moment)


def _later(moment: datetime | None, other: datetime | None) -> datetime | None:
    if UNREADABLE in (moment, other):
        return UNREADABLE
    return max(moment, other) if moment and other else moment or other


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
    for batch in batches(sorted(spellings(uuids))):
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

"""Read instances of one cell by their uuids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.model import Instance
from gpustack.novadb.values import UNREADABLE

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
    uuid, host, node, vm_state, task_state, deleted, hidden, display_name, updated_at, deleted_at = row
    return Instance(
        uuid=uuid.lower(),
        host=host,
        node=node,
        vm_state=vm_state,
        task_state=task_state,
        deleted=deleted or 0,
        hidden=bool(hidden),
        display_name=display_name,
        cell=cell,
        updated_at=_later(updated_at, deleted_at),
    )


def _later(moment: datetime | None, other: datetime | None) -> datetime | None:
    if UNREADABLE in (moment, other):
        return UNREADABLE
    return max(moment, other) if moment and other else moment or other

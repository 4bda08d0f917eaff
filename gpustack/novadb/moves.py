"""Read migrations: the unfinished ones of a cell, all of certain instances, and single ones."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from gpustack.base.by_key import by_key
from gpustack.novadb import tables
from gpustack.novadb.model import TERMINAL, Migration, Place
from gpustack.novadb.owners import batches, spellings


def unfinished(connection: sa.Connection) -> dict[str, tuple[Migration, ...]]:
    """Return all migrations that are unfinished, in error, or of unknown status, by instance. Their number is small."""
    table = tables.migrations.c
    return _migrations(connection, sa.or_(table.status.is_(None), table.status.not_in(sorted(TERMINAL))))


def moves_of(connection: sa.Connection, uuids: Iterable[str]) -> dict[str, tuple[Migration, ...]]:
    """Return all migrations of instances, including finished ones, by instance."""
    by_instance: dict[str, tuple[Migration, ...]] = {}
    for batch in batches(spellings(sorted(uuids))):
        for uuid, moves in _migrations(connection, tables.migrations.c.instance_uuid.in_(batch)).items():
            by_instance[uuid] = (*by_instance.get(uuid, ()), *moves)
    return by_instance


def by_uuid(connection: sa.Connection, uuid: str) -> Mapping[str, Any] | None:
    """Return the migration with this uuid, including soft-deleted ones; None if there is none.

    As a consumer in Placement, it holds what its instance had before the move.
    """
    table = tables.migrations
    if "uuid" not in {column.name for column in tables.columns(connection, table)}:
        return None
    query = sa.select(table.c.id, table.c.status, table.c.instance_uuid, table.c.updated_at)
    row = connection.execute(query.where(table.c.uuid == uuid).order_by(table.c.id.desc())).mappings().first()
    return None if row is None else dict(row)


def _migrations(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> dict[str, tuple[Migration, ...]]:
    table = tables.migrations.c
    columns = tables.columns(connection, tables.migrations)
    query = sa.select(*columns).where(table.deleted == 0, condition).order_by(table.id)
    found = []
    for row in connection.execute(query).mappings():
        values: dict[str, Any] = {column.name: row.get(column.name) for column in fields(Migration)}
        moments = {"updated_at": row["updated_at"] or row["created_at"]}
        found.append(Migration(**values | moments | {"cross_cell_move": bool(row.get("cross_cell_move"))}))
    by_instance = by_key(((move.instance_uuid or "").lower(), move) for move in found)
    return {uuid: tuple(moves) for uuid, moves in by_instance.items()}


def by_place(unfinished: Mapping[str, tuple[Migration, ...]]) -> dict[Place, list[Migration]]:
    """Return the migrations by compute node, source and destination."""
    all_moves = (move for moves in unfinished.values() for move in moves)
    return by_key((place, move) for move in all_moves for place in dict.fromkeys(move.places))

"""Read migrations: the unfinished ones of a cell, all of certain instances, and single ones."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from gpustack.base.by_key import by_key
from gpustack.novadb import tables
from gpustack.novadb.model import TERMINAL, Migration, Place
from gpustack.novadb.owners import batches, spellings

Moves = dict[str, Mapping[str, Any]]
"""Migrations by their own uuid."""


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


def by_uuids(connection: sa.Connection, uuids: Iterable[str]) -> Moves:
    """Return the migrations with these uuids, including soft-deleted ones: the newest of each.

    As consumers in Placement, they hold what their instances had before the move.
    """
    table = tables.migrations
    if "uuid" not in {column.name for column in tables.columns(connection, table)}:
        return {}
    columns = (table.c.uuid, table.c.id, table.c.status, table.c.instance_uuid, table.c.updated_at)
    query = sa.select(*columns).order_by(table.c.id)
    found = (connection.execute(query.where(table.c.uuid.in_(batch))).mappings() for batch in batches(sorted(uuids)))
    return {str(row["uuid"]): dict(row) for rows in found for row in rows}


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

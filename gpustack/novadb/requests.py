"""Read the PCI requests of instances (``instance_extra.pci_requests``)."""

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.model import Request
from gpustack.novadb.owners import batches
from gpustack.novadb.values import count, parsed


class Asked(NamedTuple):
    """The PCI requests of an instance (None: unreadable), and their text in the database."""

    requests: tuple[Request, ...] | None
    text: str | None


UNREADABLE_REQUESTS = Asked(None, None)


def read_requests(connection: sa.Connection, uuids: Iterable[str]) -> dict[str, Asked]:
    """Return the PCI requests of instances, by uuid; an instance without a row is missing.

    A deleted instance has only deleted rows. They do not count for an instance with a row that is not deleted.
    """
    table = tables.instance_extra.c
    live: dict[str, Asked] = {}
    deleted: dict[str, Asked] = {}
    for batch in batches(sorted(uuids)):
        query = sa.select(table.instance_uuid, table.deleted, table.pci_requests)
        for uuid, is_deleted, text in connection.execute(query.where(table.instance_uuid.in_(batch))).all():
            add_requests(deleted if is_deleted else live, uuid.lower(), parse_requests(text))
    return {**deleted, **live}


def add_requests(by_instance: dict[str, Asked], uuid: str, asked: Asked) -> None:
    """Add the PCI requests of one row; if the rows of an instance differ, none is used."""
    same = by_instance.get(uuid, asked) == asked
    by_instance[uuid] = asked if same else UNREADABLE_REQUESTS


def parse_requests(text: str | None) -> Asked:
    """Parse ``instance_extra.pci_requests`` (``nova/objects/instance_pci_requests.py``); NULL means no requests."""
    if not text:
        return Asked((), text)
    try:
        return Asked(
            tuple(
                [
                    Request(
                        request_id=entry.get("request_id"),
                        count=count(entry["count"]),
                        alias_name=entry.get("alias_name"),
                    )
                    for entry in parsed(text)
                ]
            ),
            text,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNREADABLE_REQUESTS

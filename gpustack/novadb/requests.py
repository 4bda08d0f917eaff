"""Read the requests of instances: for PCI devices (``instance_extra.pci_requests``), and for the scheduler."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from gpustack.novadb import tables
from gpustack.novadb.model import DAMAGE, Request, count, parsed
from gpustack.novadb.owners import batches, spellings


class Asked(NamedTuple):
    """The PCI requests of an instance (None: unreadable), and their text in the database."""

    requests: tuple[Request, ...] | None
    text: str | None


UNREADABLE_REQUESTS = Asked(None, None)


def read_requests(connection: sa.Connection, uuids: Iterable[str], alive: Container[str] = ()) -> dict[str, Asked]:
    """Return the PCI requests of instances, by uuid; an instance without a row is missing.

    A deleted instance has only deleted rows. Nova reads none of them for one that is ``alive``, or has another row.
    """
    table = tables.instance_extra.c
    live, deleted = dict[str, Asked](), dict[str, Asked]()
    for batch in batches(sorted(spellings(uuids))):
        query = sa.select(table.instance_uuid, table.deleted, table.pci_requests)
        for uuid, is_deleted, text in connection.execute(query.where(table.instance_uuid.in_(batch))).all():
            add_requests(deleted if is_deleted else live, uuid.lower(), parse_requests(text))
    return {**{uuid: asked for uuid, asked in deleted.items() if uuid not in alive}, **live}


def add_requests(by_instance: dict[str, Asked], uuid: str, asked: Asked) -> None:
    """Add the PCI requests of one row; if the rows of an instance differ, none is used."""
    same = by_instance.get(uuid, asked) == asked
    by_instance[uuid] = asked if same else UNREADABLE_REQUESTS


def parse_requests(text: str | None) -> Asked:
    """Parse ``instance_extra.pci_requests`` (``nova/objects/instance_pci_requests.py``); NULL means no requests."""
    if not text:
        return Asked((), text)
    try:
        requests = [
            Request(request_id=entry.get("request_id"), count=count(entry["count"]), alias_name=entry.get("alias_name"))
            for entry in parsed(text)
        ]
        return Asked(tuple(requests), text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNREADABLE_REQUESTS


class SchedulerRequest(NamedTuple):
    """The parts of an instance's request as :class:`gpustack.cloud.boot.BootRecord`; no API shows the ports."""

    zone: str
    image: Mapping[str, str]
    hints: Mapping[str, tuple[str, ...]]
    ports: int = 0


def scheduler_request(connection: sa.Connection, uuid: str) -> SchedulerRequest | None:
    """Read ``request_specs`` of an API database; None if it lacks the instance, or its row is unreadable."""
    table = sa.table("request_specs", sa.column("instance_uuid"), sa.column("spec")).c
    query = sa.select(table.spec).where(table.instance_uuid.in_(sorted(spellings([uuid]))))
    try:
        spec = parsed(connection.scalars(query).first() or "")[_DATA]
        devices = (spec.get("pci_requests") or {}).get(_DATA) or {}
        image = ((spec.get("image") or {}).get(_DATA) or {}).get("properties") or {}
        return SchedulerRequest(
            zone=str(spec.get("availability_zone") or ""),
            image=dict(_properties(image.get(_DATA) or {})),
            ports=sum(entry[_DATA].get("alias_name") is None for entry in devices.get("requests") or ()),
            hints={str(k): tuple(map(str, values)) for k, values in (spec.get("scheduler_hints") or {}).items()},
        )
    except DAMAGE:
        return None


_DATA = "nova_object.data"


def _properties(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The properties of an image from the fields of ``ImageMetaProps`` (nova/objects/image_meta.py)."""
    for name, value in fields.items():
        if name == "traits_required":
            yield from ((f"trait:{trait}", "required") for trait in value)
        elif name in ("hw_numa_cpus", "hw_numa_mem"):
            for number, part in enumerate(value):
                yield f"{name}.{number}", ",".join(map(str, part)) if isinstance(part, list) else str(part)
        elif value is not None:
            yield name, ",".join(map(str, value)) if isinstance(value, list) else str(value)

"""Shared by the classes for rows whose owner is alive but placed elsewhere."""

from collections.abc import Iterator

from gpustack.base.by_key import by_key
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import NodeView, Owner


def left_behind(view: NodeView) -> Iterator[tuple[PciRow, Owner]]:
    """Yield the live, taken rows of a live compute node whose owner is alive, or unknown, and not placed here."""
    if view.node.deleted:
        return
    for row, owner in view.displaced:
        if owner.alive or unknown(owner):
            yield row, owner


def left_behind_by_owner(view: NodeView) -> Iterator[tuple[tuple[PciRow, ...], Owner]]:
    """Yield the rows of :func:`left_behind`, grouped by owner."""
    for uuid, rows in by_key((owner.uuid, row) for row, owner in left_behind(view)).items():
        yield tuple(rows), view.owners[uuid]


def unknown(owner: Owner) -> bool:
    """Whether a database that could have the owner could not be read."""
    return owner.unknown_because is not None

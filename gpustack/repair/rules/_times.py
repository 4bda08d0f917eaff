"""Check the times on which a verdict depends, and compute when the grace time ends.

A time in the future would protect a row until then. A running migration without any time would protect it indefinitely.
An unreadable time proves nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from gpustack.novadb.model import UNREADABLE
from gpustack.novadb.view import Clock, NodeView, Owner
from gpustack.repair.evidence import in_flight
from gpustack.repair.verdict import Status, Verdict

_ADVICE = (
    "compare the clocks of the hosts, the controllers and the database (chronyc tracking); if they agree, the value "
    "was edited or damaged: set it to the current time (UTC_TIMESTAMP()), and plan again after the grace time"
)
_JUDGED = (Status.STALE, Status.HEALS, Status.PROTECTED)


def timely(verdict: Verdict, view: NodeView, clock: Clock, owner: Owner | None = None) -> Verdict:
    """Return the verdict, or *undecided* if a time that it depends on is unusable.

    :param owner: the owner, if it is not among the view's owners.
    """
    if verdict.status not in _JUDGED:
        return verdict
    owner = owner or view.owners.get(verdict.owner or "")
    if not (faults := list(_wrong(verdict, view, clock, owner))):
        young = [moment for _what, moment in _moments(verdict, view, owner) if moment and clock.recent(moment)]
        early = verdict.status is Status.PROTECTED and young and not in_flight(owner)
        return replace(verdict, again=max(young) + clock.grace) if early else verdict
    return verdict.undecided("; ".join(dict.fromkeys(faults)), _ADVICE)


def _wrong(verdict: Verdict, view: NodeView, clock: Clock, owner: Owner | None) -> Iterator[str]:
    for record, moment in _moments(verdict, view, owner):
        if moment == UNREADABLE:
            yield f"a time of {record} can't be read"
        elif clock.ahead(moment):
            yield f"{record} was last written {moment}, which is yet to come (the database's clock: {clock.now:%F %T})"
    for move in owner.moves if owner else ():
        if move.in_flight and move.updated_at is None:
            yield f"migration {move.id} is {move.status}, and has no time at which it was written"


def _moments(verdict: Verdict, view: NodeView, owner: Owner | None) -> Iterator[tuple[str, datetime | None]]:
    for row in verdict.rows or (view.rows if owner is None else ()):
        yield f"row {row.id}", row.changed_at
    if owner is not None:
        if owner.instance is not None:
            yield f"instance {owner.uuid}", owner.instance.updated_at
        for move in owner.moves:
            yield f"migration {move.id}", move.updated_at
    node = view.node
    yield f"compute node {node.name}", node.deleted_at if node.deleted else node.updated_at
    if view.service is not None and view.service.reported_at == UNREADABLE:
        yield f"the nova-compute service of {view.service.host}", UNREADABLE

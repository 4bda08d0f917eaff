"""Plan the undo of a run: the reverses of its changes, in reverse order. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from gpustack.base.errors import JournalError
from gpustack.changes.change import ChangeResult, CloudChange, reversed_order
from gpustack.changes.journal import RunRecord

Kinds = Mapping[str, type[CloudChange]]
"""The classes of changes by their kind of object."""


def plan_undo(record: RunRecord, kinds: Kinds) -> tuple[tuple[CloudChange, ...], tuple[CloudChange, ...]]:
    """The changes that revert a run, and those of its changes that nothing reverts.

    :raises JournalError: if the journal contains a change that gpustack does not make.
    """
    made: list[CloudChange] = []
    final: list[CloudChange] = []
    for line in record.made:
        kind = kinds.get(line.kind)
        if kind is None:
            raise JournalError(f"unknown kind of change {line.kind!r}", where=str(record.path))
        end = record.ends.get(line.key)
        change = kind.from_record({**line.model_dump(), "id": (end.id if end else "") or line.id})
        if reason := change.permitted():
            raise JournalError(f"{change.name}: {reason}; nothing was changed", where=str(record.path))
        whole = record.results[line.key] is ChangeResult.DONE
        change = replace(change, partial=not whole)
        (made if change.reversible else final).append(change)
    return tuple(replace(change, why=f"undo of {record.head.id}") for change in reversed_order(made)), tuple(final)

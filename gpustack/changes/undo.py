"""Plan the undo of a run: the reverses of its changes, in reverse order. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gpustack.base.errors import JournalError
from gpustack.base.validation import first_problem
from gpustack.changes.change import ChangeResult, CloudChange, reversed_order
from gpustack.changes.journal import RESTORE, PlannedChange, RunRecord
from gpustack.cloud import Connection
from gpustack.cloud.reads import reading_once

Kinds = Mapping[str, type[CloudChange]]
"""The classes of changes by their kind of object."""


def plan_undo(record: RunRecord, kinds: Kinds) -> tuple[tuple[CloudChange, ...], tuple[CloudChange, ...]]:
    """The changes that revert a run, and those of its changes that nothing reverts.

    :raises JournalError: if the journal contains a change that gpustack does not make.
    """
    made: list[CloudChange] = []
    final: list[CloudChange] = []
    for line in record.made:
        end = record.ends.get(line.key)
        change = change_of(line, kinds, str(record.path), end.id if end else "", record.payloads.get(line.key))
        change = replace(change, partial=record.results[line.key] is not ChangeResult.DONE, recorded=True)
        (made if change.reversible else final).append(change)
    return tuple(replace(change, why=f"undo of {record.head.id}") for change in reversed_order(made)), tuple(final)


def without_gone(
    changes: Iterable[CloudChange], cloud: Connection
) -> tuple[tuple[CloudChange, ...], tuple[CloudChange, ...]]:
    """The changes that are still possible, and those whose project, host or image does not exist any more.

    :param changes: each after those that it needs.
    :raises gpustack.base.errors.CloudError: if the cloud cannot be read.
    """
    kept: list[CloudChange] = []
    gone: dict[str, CloudChange] = {}
    with reading_once():
        for change in changes:
            # What waits for a change that is gone waits for those that this one waited for.
            needs, after = (
                dict.fromkeys(f for key in keys for f in (getattr(gone[key], name) if key in gone else (key,)))
                for name, keys in (("needs", change.needs), ("after", change.after))
            )
            change = replace(change, needs=tuple(needs), after=tuple(after))
            if (remaining := change.remaining(cloud)) is None:
                gone[change.key] = change
            else:
                kept.append(remaining)
    return tuple(kept), tuple(gone.values())


def change_of(
    line: PlannedChange, kinds: Kinds, where: str, new_id: str = "", payload: Mapping[str, Any] | None = None
) -> CloudChange:
    """The change of a line of a file.

    :param new_id: the id that the change gave its object.
    :param payload: what it recorded when it began.
    :raises JournalError: if gpustack does not make such a change.
    """
    if (kind := kinds.get(line.kind)) is None:
        raise JournalError(f"unknown kind of change {line.kind!r}", where=where, remedy=RESTORE)
    change = kind.from_record({**line.model_dump(), "id": new_id or line.id, "payload": payload})
    if reason := _malformed(change) or change.permitted():
        raise JournalError(f"{change.name}: {reason}; nothing was changed", where=where, remedy=RESTORE)
    return change


def _malformed(change: CloudChange) -> str:
    """How a change differs from those of its kind; empty if it does not. Others can edit a journal."""
    if missing := set(change.described) - change.about.keys():
        return f"the journal lacks {', '.join(sorted(missing))}"
    adapter = TypeAdapter(change.value, config=ConfigDict(strict=True))
    try:
        adapter.validate_python(change.seen)
        adapter.validate_python(change.wanted)
    except ValidationError as error:
        return f"gpustack writes no such value: {first_problem(error)}"
    return ""

"""An interrupted change of a default limit: the projects that lack their own limit get one again.

Keystone changes a default only if no project has a limit of its own, so a run deletes these limits and creates them
again. If it is interrupted between, the default applies to these projects. This completes the run if the default has
its new value, and restores the limits otherwise.
"""

from collections.abc import Iterator
from dataclasses import replace

from gpustack.base.findings import Code, Finding, finding
from gpustack.changes.change import SUCCESSFUL, CloudChange
from gpustack.changes.journal import RunRecord
from gpustack.changes.journal_lines import PlannedChange
from gpustack.changes.undo import change_of
from gpustack.cloud.limits import LimitsCloud
from gpustack.offer.quota.changes import LimitChange


def completion(record: RunRecord, api: LimitsCloud) -> tuple[tuple[CloudChange, ...], tuple[Finding, ...]]:
    """The changes that create missing limits again, and a finding about them; none if the run left none out.

    :raises gpustack.base.errors.CloudError: if Keystone cannot be read.
    :raises gpustack.base.errors.JournalError: if somebody edited the journal.
    """
    changes = tuple(change for line in _left_out(record) if (change := _again(line, record, api)))
    if not changes:
        return (), ()
    names = ", ".join(change.name for change in changes)
    head = record.head
    return changes, (finding(Code.LIMITS_INTERRUPTED, place=head.id, command=head.command, at=head.at, limits=names),)


def _left_out(record: RunRecord) -> Iterator[PlannedChange]:
    """The limits of projects that the run may have deleted and did not create again."""
    made = {change.key for change in record.made}
    deleted = set[tuple[str, str]]()
    for line in record.head.changes:
        if line.kind != LimitChange.object_kind or _of_default(line):
            continue
        if line.wanted is None and line.key in made:
            deleted.add(_place(line))
        elif _place(line) in deleted and record.results.get(line.key) not in SUCCESSFUL:
            yield line


def _again(line: PlannedChange, record: RunRecord, api: LimitsCloud) -> CloudChange | None:
    """The creation of a limit, with its former value if the default was not changed; None if the limit exists."""
    kinds, where = {LimitChange.object_kind: LimitChange}, str(record.path)
    change = change_of(line, kinds, where)
    if change.read(api) is not None:
        return None
    of_class = [
        change_of(other, kinds, where)
        for other in record.head.changes
        if other.kind == LimitChange.object_kind and other.about["resource_class"] == change.about["resource_class"]
    ]
    default = next((other for other in of_class if _of_default(other) and other.seen is not None), None)
    former = next(other.seen for other in of_class if _place(other) == _place(change) and other.wanted is None)
    changed = default is None or default.read(api) == default.wanted
    return replace(change, wanted=change.wanted if changed else former, needs=())


def _place(change: PlannedChange | CloudChange) -> tuple[str, str]:
    """The limit: projects of several domains can have one name."""
    return change.about["resource_class"], change.about["project"]


def _of_default(change: PlannedChange | CloudChange) -> bool:
    return not change.about["project"]

"""The changes of limits: of a project, or the default of all projects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from gpustack.base.errors import CloudError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.changes.change import SUCCESSFUL, CloudChange, Value
from gpustack.changes.journal import PlannedChange, RunRecord
from gpustack.changes.undo import change_of
from gpustack.cloud import Connection, identity
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, LimitsCloud
from gpustack.cloud.placement import DEVICE_CLASSES
from gpustack.offer.quota.shares import description_of


@dataclass(frozen=True, kw_only=True)
class LimitChange(CloudChange):
    """Create, change or delete the limit of a project, or the default of all projects; the value is the limit."""

    object_kind: ClassVar[str] = "limit"
    value: ClassVar[Any] = int | None
    described: ClassVar[tuple[str, ...]] = ("resource_class", "project", "description", "model", "project_name")

    @classmethod
    def of(
        cls, counted: tuple[str, str], project: Project | None, before: Limit | None, wanted: int | None, why: str
    ) -> Self:
        """The change of a limit; of the default of all projects without ``project``.

        :param counted: the resource class, and its model in the spec (the class again if the spec has none for it).
        :param wanted: the limit; None to delete it.
        """
        resource_class, model = counted
        about = {
            "resource_class": resource_class,
            "project": project.id if project else "",
            "description": before.description if before else description_of(model),
            "model": model,
            "project_name": project.name if project else "",
        }
        name = f"{f'limit of {project.name}' if project else 'default limit'} for {model}"
        return cls(why=why, name=name, seen=before.limit if before else None, wanted=wanted, about=about)

    @classmethod
    def client(cls, connection: Connection) -> LimitsCloud:
        return LimitsCloud(connection)

    @property
    def of_default(self) -> bool:
        """Whether it is the default of all projects."""
        return not self.about["project"]

    def describe(self) -> str:
        if self.wanted is None:
            return f"delete the {self.name} (was {self.seen})"
        if self.seen is None:
            return f"create the {self.name}: {self.wanted}"
        return f"change the {self.name}: {self.wanted} (was {self.seen})"

    def to_dict(self) -> dict[str, object]:
        values = {key: self.about[key] or None for key in ("model", "resource_class", "project", "project_name")}
        return {"kind": f"{self.verb}_limit", "why": self.why, **values, "limit": self.wanted, "before": self.seen}

    def permitted(self) -> str:
        name = self.about["resource_class"]
        return "" if any(fnmatchcase(name, form) for form in DEVICE_CLASSES) else f"gpustack sets no limit of {name!r}"

    def remaining(self, cloud: Connection) -> Self | None:
        gone = self.wanted is not None and not self.of_default and not identity.projects(cloud, self.about["project"])
        return None if gone else self

    def read(self, api: LimitsCloud) -> Value:
        found = api.find(self.about["resource_class"], self.about["project"] or None)
        if found is None and self.seen is not None and not self.of_default and not api.present().complete:
            what = "Keystone shows no such limit, but may hide the limits of other projects from this user"
            raise CloudError(what, remedy="give the user a role of the system: gpustack explain GPU748")
        return None if found is None else found.limit

    def obstacle(self, api: LimitsCloud, made: Sequence[CloudChange]) -> str:
        """Keystone keeps a default as long as projects have limits; a plan knows them, an undo may be much later."""
        if not (self.recorded and self.of_default) or self.seen is None:
            return ""
        deleted = {_place(other) for other in made if isinstance(other, LimitChange) and other.wanted is None}
        name, limits = self.about["resource_class"], api.present().limits
        left = [str(of.project) for of in limits if of.resource_class == name and (name, of.project) not in deleted]
        return f"projects have limits of their own: {listed(left, 8)}" if left else ""

    def carry_out(self, api: LimitsCloud) -> str:
        name, project = self.about["resource_class"], self.about["project"] or None
        present = None if self.seen is None else api.find(name, project)
        if self.wanted is None:
            if present is not None:
                api.delete(present)
        elif present is None:
            api.create(name, project, self.wanted, self.about["description"])
        else:
            api.change(present, self.wanted)
        return ""


def completion(record: RunRecord, api: LimitsCloud) -> tuple[tuple[CloudChange, ...], tuple[Finding, ...]]:
    """The changes that create missing limits again, and a finding about them; none if the run left none out.

    Keystone changes a default only if no project has a limit of its own, so a run deletes these limits and creates them
    again. If it is interrupted between, the default applies to these projects. This completes the run if the default
    has its new value, and restores the limits otherwise.

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
        if line.kind != LimitChange.object_kind or not line.about["project"]:
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
    default = next((other for other in of_class if not other.about["project"] and other.seen is not None), None)
    former = next(other.seen for other in of_class if _place(other) == _place(change) and other.wanted is None)
    changed = default is None or default.read(api) == default.wanted
    return replace(change, wanted=change.wanted if changed else former, needs=())


def _place(change: PlannedChange | CloudChange) -> tuple[str, str]:
    """The limit: projects of several domains can have one name."""
    return change.about["resource_class"], change.about["project"]

"""The changes of limits: of a project, or the default of all projects."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from gpustack.changes.change import CloudChange, Value
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
        return None if found is None else found.limit

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

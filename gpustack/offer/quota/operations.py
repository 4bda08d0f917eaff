"""The operations on limits: create, change, delete."""

from dataclasses import dataclass
from typing import ClassVar

from gpustack.base.operations import Operation
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit


@dataclass(frozen=True, kw_only=True)
class _LimitOperation(Operation):
    """An operation on one limit.

    :ivar model: the model in the spec; the resource class if the spec has none for it.
    :ivar project: the project; None for the default of all projects.
    """

    resource_class: str
    model: str
    project: Project | None = None

    @property
    def name(self) -> str:
        """The limit in words."""
        whose = f"limit of {self.project.name}" if self.project else "default limit"
        return f"{whose} for {self.model}"

    def _to_dict(self, limit: int | None, before: int | None) -> dict[str, object]:
        return {
            "kind": self.kind,
            "why": self.why,
            "model": self.model,
            "resource_class": self.resource_class,
            "project": self.project.id if self.project else None,
            "project_name": self.project.name if self.project else None,
            "limit": limit,
            "before": before,
        }


@dataclass(frozen=True, kw_only=True)
class CreateLimit(_LimitOperation):
    """Create a limit."""

    kind: ClassVar[str] = "create_limit"
    limit: int

    def describe(self) -> str:
        return f"create the {self.name}: {self.limit}"

    def to_dict(self) -> dict[str, object]:
        return self._to_dict(self.limit, None)


@dataclass(frozen=True, kw_only=True)
class ChangeLimit(_LimitOperation):
    """Change a limit; ``before`` has the present one."""

    kind: ClassVar[str] = "change_limit"
    limit: int
    before: Limit

    def describe(self) -> str:
        return f"change the {self.name}: {self.limit} (was {self.before.limit})"

    def to_dict(self) -> dict[str, object]:
        return self._to_dict(self.limit, self.before.limit)


@dataclass(frozen=True, kw_only=True)
class DeleteLimit(_LimitOperation):
    """Delete a limit; the default then applies to the project."""

    kind: ClassVar[str] = "delete_limit"
    before: Limit

    def describe(self) -> str:
        return f"delete the {self.name} (was {self.before.limit})"

    def to_dict(self) -> dict[str, object]:
        return self._to_dict(None, self.before.limit)


LimitOperation = CreateLimit | ChangeLimit | DeleteLimit

"""The operations on limits as changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gpustack.changes.change import CloudChange, Value
from gpustack.cloud.limits import LimitsCloud
from gpustack.offer.quota.operations import ChangeLimit, CreateLimit, LimitOperation
from gpustack.offer.quota.shares import description_of

if TYPE_CHECKING:
    from openstack.connection import Connection


@dataclass(frozen=True, kw_only=True)
class LimitChange(CloudChange):
    """Create, change or delete the limit of a project, or the default of all projects; the value is the limit."""

    kind: ClassVar[str] = "change_limit"
    object_kind: ClassVar[str] = "limit"

    @classmethod
    def client(cls, connection: Connection) -> LimitsCloud:
        return LimitsCloud(connection)

    def describe(self) -> str:
        if self.wanted is None:
            return f"delete the {self.name} (was {self.seen})"
        if self.seen is None:
            return f"create the {self.name}: {self.wanted}"
        return f"change the {self.name}: {self.wanted} (was {self.seen})"

    def details(self) -> list[str]:
        return []

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


def changes(operations: Sequence[LimitOperation]) -> tuple[CloudChange, ...]:
    """The operations as changes; each needs the one before, since Keystone requires an order."""
    made: list[CloudChange] = []
    for operation in operations:
        project = operation.project.id if operation.project else ""
        before = None if isinstance(operation, CreateLimit) else operation.before
        made.append(
            LimitChange(
                why=operation.why,
                name=operation.name,
                seen=before.limit if before else None,
                wanted=operation.limit if isinstance(operation, CreateLimit | ChangeLimit) else None,
                needs=tuple(change.key for change in made[-1:]),
                about={
                    "resource_class": operation.resource_class,
                    "project": project,
                    "description": before.description if before else description_of(operation.model),
                },
                # A limit that is deleted and created again in one plan is changed twice.
                tag=f"limit:{len(made)}",
            )
        )
    return tuple(made)

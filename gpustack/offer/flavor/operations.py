"""The operations on flavors: create, change, delete."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from gpustack.base.operations import Operation
from gpustack.base.text import counted
from gpustack.changes.change import difference
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import ACCESS, PresentFlavor
from gpustack.spec.extra_specs import NAMESPACE


@dataclass(frozen=True, kw_only=True)
class CreateFlavor(Operation):
    """Create a flavor with its extra specs and projects.

    :ivar id: its id; a new UUID if None.
    :ivar extra_specs: all extra specs including the mark; the access mark is written last.
    :ivar access: ids of the projects that may use it; None makes it public.
    :ivar access_mark: the access mark; None if public.
    """

    kind: ClassVar[str] = "create_flavor"
    name: str
    sizes: Sizes
    description: str
    extra_specs: Mapping[str, str]
    id: str | None = None
    access: frozenset[str] | None = None
    access_mark: str | None = None

    def describe(self) -> str:
        return f"create {self.name} ({self.sizes}; {_who(self.access)})"

    def details(self) -> list[str]:
        """Return the extra specs without the mark, one for each line."""
        return [f"+ {key} = {value}" for key, value in self.extra_specs.items() if not key.startswith(NAMESPACE)]

    def all_extra_specs(self) -> dict[str, str]:
        """Return the extra specs including the access mark."""
        return {**self.extra_specs, **({ACCESS: self.access_mark} if self.access_mark is not None else {})}

    def to_dict(self) -> dict[str, object]:
        known: dict[str, object] = {"kind": self.kind, "why": self.why, "name": self.name, "id": self.id}
        return known | {
            **self.sizes.to_dict(),
            "description": self.description,
            "extra_specs": self.all_extra_specs(),
            "access": None if self.access is None else sorted(self.access),
        }


@dataclass(frozen=True, kw_only=True)
class ChangeFlavor(Operation):
    """Change a flavor, except its sizes, its id and its visibility.

    :ivar set_specs: extra specs to set, including the mark.
    :ivar unset_specs: extra specs to remove, in this order.
    :ivar before: the present values of both; None for a missing one.
    :ivar description: the new and the old description; None keeps it.
    :ivar grant: ids of the projects to give access.
    :ivar revoke: ids of the projects to remove access from.
    :ivar access_mark: the mark to write after the project list is correct; None keeps it.
    :ivar access_mark_before: the present access mark; None if there is none, or if it is kept.
    """

    kind: ClassVar[str] = "change_flavor"
    id: str
    name: str
    set_specs: Mapping[str, str] = field(default_factory=dict)
    unset_specs: tuple[str, ...] = ()
    before: Mapping[str, str | None] = field(default_factory=dict)
    description: tuple[str, str] | None = None
    grant: frozenset[str] = frozenset()
    revoke: frozenset[str] = frozenset()
    access_mark: str | None = None
    access_mark_before: str | None = None

    def describe(self) -> str:
        return f"change {self.name}: {self.why}"

    def details(self) -> list[str]:
        """Return the changes of extra specs, description and access, one for each line, without the mark."""
        wanted = {**self.set_specs, **dict.fromkeys(self.unset_specs)}
        shown = [key for key in wanted if not key.startswith(NAMESPACE)]
        lines = difference(*({key: of.get(key) for key in shown} for of in (self.before, wanted)))
        lines += [f"~ description = {self.description[0]} (was {self.description[1]})"] if self.description else []
        lines += [f"+ project {project}" for project in sorted(self.grant)]
        lines += [f"- project {project}" for project in sorted(self.revoke)]
        return lines or ["~ gpustack's mark"]

    def to_dict(self) -> dict[str, object]:
        known: dict[str, object] = {"kind": self.kind, "why": self.why, "name": self.name, "id": self.id}
        return known | {
            "set": dict(self.set_specs),
            "unset": list(self.unset_specs),
            "before": dict(self.before),
            "description": None if self.description is None else self.description[0],
            "grant": sorted(self.grant),
            "revoke": sorted(self.revoke),
        }


@dataclass(frozen=True, kw_only=True)
class DeleteFlavor(Operation):
    """Delete a flavor; ``flavor`` has all data that are lost.

    :ivar force: whether to delete it although instances use it.
    """

    kind: ClassVar[str] = "delete_flavor"
    flavor: PresentFlavor
    force: bool = False

    @property
    def name(self) -> str:
        return self.flavor.name

    def describe(self) -> str:
        return f"delete {self.flavor.name} ({self.flavor.sizes})"

    def details(self) -> list[str]:
        """Return the extra specs that are lost, one for each line."""
        specs = self.flavor.extra_specs
        return [f"- {key} = {value}" for key, value in specs.items() if not key.startswith(NAMESPACE)]

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "why": self.why, **self.flavor.to_dict()}


FlavorOperation = CreateFlavor | ChangeFlavor | DeleteFlavor


def _who(access: frozenset[str] | None) -> str:
    if access is None:
        return "public"
    if not access:
        return "for administrators"
    return f"for {counted(len(access), 'project')}"

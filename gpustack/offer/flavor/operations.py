"""The operations on flavors: create, change, delete."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from gpustack.base.operations import Operation
from gpustack.base.text import counted
from gpustack.changes.change import difference
from gpustack.offer.flavor.flavors import ACCESS, PresentFlavor, is_sets_mark
from gpustack.spec.extra_specs import NAMESPACE


@dataclass(frozen=True, kw_only=True)
class FlavorOperation(Operation):
    """The base of the operations on flavors.

    :ivar flavor: the flavor after the operation; of a deletion, the flavor with all data that are lost.
    """

    sign: ClassVar[str] = "+"
    flavor: PresentFlavor

    @property
    def name(self) -> str:
        return self.flavor.name

    def details(self) -> list[str]:
        """Return the extra specs that are created or lost, one for each line, without the mark."""
        return [f"{self.sign} {key} = {value}" for key, value in _shown(self.flavor.extra_specs)]


@dataclass(frozen=True, kw_only=True)
class CreateFlavor(FlavorOperation):
    """Create a flavor with its extra specs and projects; without an id, it gets a new UUID.

    A private flavor has the ids of its projects. The access mark, one of its extra specs, is written last.
    """

    kind: ClassVar[str] = "create_flavor"

    def describe(self) -> str:
        return f"create {self.name} ({self.flavor.sizes}; {_who(self.flavor)})"

    def to_dict(self) -> dict[str, object]:
        known: dict[str, object] = {"kind": self.kind, "why": self.why, "name": self.name, "id": self.flavor.id or None}
        return known | {key: value for key, value in self.flavor.to_dict().items() if key not in (*known, "public")}


@dataclass(frozen=True, kw_only=True)
class ChangeFlavor(FlavorOperation):
    """Change a flavor, except its sizes, its id and its visibility.

    :ivar before: the present flavor. Both have the ids of the projects if these were read.
    """

    kind: ClassVar[str] = "change_flavor"
    before: PresentFlavor

    @property
    def set_specs(self) -> dict[str, str]:
        """The extra specs to set, including the mark; the access mark is written after the projects are correct."""
        before = self.before.extra_specs
        return {k: v for k, v in self.flavor.extra_specs.items() if before.get(k) != v and k != ACCESS}

    @property
    def unset_specs(self) -> tuple[str, ...]:
        """The extra specs to remove, in this order; the mark last: it records which extra specs gpustack set."""
        gone, owned = self.before.extra_specs.keys() - self.flavor.extra_specs.keys(), self.before.owned
        return tuple(sorted(gone, key=lambda key: (is_sets_mark(key), key in owned, key)))

    @property
    def grant(self) -> frozenset[str]:
        """The ids of the projects to give access."""
        return (self.flavor.access or frozenset()) - (self.before.access or frozenset())

    @property
    def revoke(self) -> frozenset[str]:
        """The ids of the projects to remove access from."""
        return (self.before.access or frozenset()) - (self.flavor.access or frozenset())

    def describe(self) -> str:
        return f"change {self.name}: {self.why}"

    def details(self) -> list[str]:
        """Return the changes of extra specs, description and access, one for each line, without the mark."""
        wanted = dict(_shown({**self.set_specs, **dict.fromkeys(self.unset_specs, "")}))
        states = [self.before, self.flavor]
        lines = difference(*({key: state.extra_specs.get(key) for key in wanted} for state in states))
        if self.flavor.description != self.before.description:
            lines += [f"~ description = {self.flavor.description} (was {self.before.description})"]
        lines += [f"+ project {project}" for project in sorted(self.grant)]
        lines += [f"- project {project}" for project in sorted(self.revoke)]
        return lines or ["~ gpustack's mark"]

    def to_dict(self) -> dict[str, object]:
        known: dict[str, object] = {"kind": self.kind, "why": self.why, "name": self.name, "id": self.flavor.id}
        description = self.flavor.description
        return known | {
            "set": self.set_specs,
            "unset": list(self.unset_specs),
            "before": {key: self.before.extra_specs.get(key) for key in (*self.set_specs, *self.unset_specs)},
            "description": None if description == self.before.description else description,
            "grant": sorted(self.grant),
            "revoke": sorted(self.revoke),
        }


@dataclass(frozen=True, kw_only=True)
class DeleteFlavor(FlavorOperation):
    """Delete a flavor.

    :ivar force: whether to delete it although instances use it.
    """

    kind: ClassVar[str] = "delete_flavor"
    sign: ClassVar[str] = "-"
    force: bool = False

    def describe(self) -> str:
        return f"delete {self.name} ({self.flavor.sizes})"

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "why": self.why, **self.flavor.to_dict()}


def _shown(specs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Extra specs without the mark."""
    return ((key, value) for key, value in specs.items() if not key.startswith(NAMESPACE))


def _who(flavor: PresentFlavor) -> str:
    if flavor.public:
        return "public"
    return f"for {counted(len(flavor.access), 'project')}" if flavor.access else "for administrators"

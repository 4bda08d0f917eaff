"""The operations that reserve hosts. Each of them shows the state before it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gpustack.base.operations import Operation


@dataclass(frozen=True, kw_only=True)
class AddTrait(Operation):
    """Add a trait to a host's provider."""

    kind: ClassVar[str] = "add_trait"
    host: str
    provider: str
    trait: str

    def describe(self) -> str:
        return f"add the trait {self.trait} to {self.host}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class RemoveTrait(Operation):
    """Remove a trait from a host's provider."""

    kind: ClassVar[str] = "remove_trait"
    host: str
    provider: str
    trait: str

    def describe(self) -> str:
        return f"remove the trait {self.trait} from {self.host}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class CreateAggregate(Operation):
    """Create an aggregate without hosts."""

    kind: ClassVar[str] = "create_aggregate"
    aggregate: str

    def describe(self) -> str:
        return f"create the aggregate {self.aggregate}"


@dataclass(frozen=True, kw_only=True)
class SetMetadata(Operation):
    """Set metadata of an aggregate.

    :ivar values: the new values; None removes a key.
    :ivar before: the present values.
    """

    kind: ClassVar[str] = "set_metadata"
    aggregate: str
    values: Mapping[str, str | None]
    before: Mapping[str, str]

    def describe(self) -> str:
        return f"change the metadata of the aggregate {self.aggregate}: {self.why}"

    def details(self) -> list[str]:
        lines = []
        for name, value in self.values.items():
            old = self.before.get(name)
            if value is None:
                lines.append(f"- {name} (was {old})")
            else:
                lines.append(f"+ {name} = {value}" if old is None else f"~ {name} = {value} (was {old})")
        return lines


@dataclass(frozen=True, kw_only=True)
class AddHost(Operation):
    """Add a host to an aggregate."""

    kind: ClassVar[str] = "add_host"
    aggregate: str
    host: str

    def describe(self) -> str:
        return f"add {self.host} to the aggregate {self.aggregate}"


@dataclass(frozen=True, kw_only=True)
class RemoveHost(Operation):
    """Remove a host from an aggregate."""

    kind: ClassVar[str] = "remove_host"
    aggregate: str
    host: str

    def describe(self) -> str:
        return f"remove {self.host} from the aggregate {self.aggregate}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class DeleteAggregate(Operation):
    """Delete an aggregate without hosts.

    :ivar metadata: its metadata, which are lost.
    """

    kind: ClassVar[str] = "delete_aggregate"
    aggregate: str
    metadata: Mapping[str, str]

    def describe(self) -> str:
        return f"delete the aggregate {self.aggregate}: {self.why}"


TenancyOperation = AddTrait | RemoveTrait | CreateAggregate | SetMetadata | AddHost | RemoveHost | DeleteAggregate

"""The operations of tenancy as changes: aggregates, their metadata and hosts, traits of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from gpustack.changes.change import CloudChange, Value
from gpustack.cloud import compute, placement
from gpustack.nova_options.aggregates import PROJECTS, TRAIT, Aggregate
from gpustack.offer.tenancy.model import MARK
from gpustack.offer.tenancy.operations import (
    AddHost,
    AddTrait,
    CreateAggregate,
    DeleteAggregate,
    RemoveHost,
    RemoveTrait,
    SetMetadata,
    TenancyOperation,
)

if TYPE_CHECKING:
    from openstack.connection import Connection

_METADATA = (MARK, f"{TRAIT}*", f"{PROJECTS}*")


@dataclass(frozen=True, kw_only=True)
class AggregateChange(CloudChange):
    """Create or delete an aggregate; the value is its metadata."""

    kind: ClassVar[str] = "change_aggregate"
    object_kind: ClassVar[str] = "aggregate"
    written: ClassVar[tuple[str, ...]] = _METADATA

    def describe(self) -> str:
        return f"{'delete' if self.wanted is None else 'create'} the aggregate {self.name}"

    def read(self, api: Connection) -> Value:
        found = _aggregate(api, self.name)
        return None if found is None else dict(found.metadata)

    def obstacle(self, api: Connection) -> str:
        found = _aggregate(api, self.name) if self.wanted is None else None
        return f"it contains {', '.join(sorted(found.hosts))}" if found and found.hosts else ""

    def carry_out(self, api: Connection) -> str:
        if self.wanted is None:
            found = _aggregate(api, self.name)
            if found is not None:
                compute.delete_aggregate(api, found.id)
            return ""
        created = compute.create_aggregate(api, self.name)
        if self.wanted:
            compute.change_aggregate(api, created, "set_metadata", {"metadata": dict(self.wanted)})
        return str(created)


@dataclass(frozen=True, kw_only=True)
class MetadataChange(CloudChange):
    """Set metadata of an aggregate; None removes a key."""

    kind: ClassVar[str] = "change_metadata"
    object_kind: ClassVar[str] = "aggregate_metadata"
    written: ClassVar[tuple[str, ...]] = _METADATA

    def describe(self) -> str:
        return f"change the metadata of the aggregate {self.name}: {self.why}"

    def read(self, api: Connection) -> Value:
        found = _aggregate(api, self.name)
        return None if found is None else {key: found.metadata.get(key) for key in self.wanted}

    def carry_out(self, api: Connection) -> str:
        found = _aggregate(api, self.name)
        if found is not None:
            compute.change_aggregate(api, found.id, "set_metadata", {"metadata": dict(self.wanted)})
        return ""


@dataclass(frozen=True, kw_only=True)
class HostChange(CloudChange):
    """Add a host to an aggregate, or remove it: the value is whether the aggregate contains the host."""

    kind: ClassVar[str] = "change_host"
    object_kind: ClassVar[str] = "aggregate_host"

    def describe(self) -> str:
        host, aggregate = self.about["host"], self.about["aggregate"]
        if self.wanted:
            return f"add {host} to the aggregate {aggregate}"
        return f"remove {host} from the aggregate {aggregate}: {self.why}"

    def details(self) -> list[str]:
        return []

    def read(self, api: Connection) -> Value:
        found = _aggregate(api, self.about["aggregate"])
        return None if found is None else found.has(self.about["host"])

    def carry_out(self, api: Connection) -> str:
        found = _aggregate(api, self.about["aggregate"])
        if found is not None:
            action = "add_host" if self.wanted else "remove_host"
            compute.change_aggregate(api, found.id, action, {"host": self.about["host"]})
        return ""


@dataclass(frozen=True, kw_only=True)
class TraitChange(CloudChange):
    """Add a trait to the provider of a host, or remove it: the value is whether the provider has the trait."""

    kind: ClassVar[str] = "change_trait"
    object_kind: ClassVar[str] = "trait"

    def describe(self) -> str:
        host, trait = self.about["host"], self.about["trait"]
        if self.wanted:
            return f"add the trait {trait} to {host}: {self.why}"
        return f"remove the trait {trait} from {host}: {self.why}"

    def details(self) -> list[str]:
        return []

    def read(self, api: Connection) -> Value:
        return self.id in placement.bearers(api, self.about["trait"])

    def carry_out(self, api: Connection) -> str:
        change = placement.add_trait if self.wanted else placement.remove_trait
        change(api, self.id, self.about["trait"])
        return ""

    def permitted(self) -> str:
        return "" if self.about.get("trait", "").startswith("CUSTOM_") else "gpustack changes custom traits only"


def changes(operations: Sequence[TenancyOperation]) -> tuple[CloudChange, ...]:
    """The operations as changes; each needs the one before, since their order keeps an interruption harmless."""
    made: list[CloudChange] = []
    for operation in operations:
        # An aggregate's metadata may change twice in a plan, so the key has the number of the operation.
        needs = tuple(change.key for change in made[-1:])
        made.append(replace(_change(operation), needs=needs, tag=f"tenancy:{len(made)}"))
    return tuple(made)


def _change(operation: TenancyOperation) -> CloudChange:
    why = operation.why
    match operation:
        case CreateAggregate():
            return AggregateChange(why=why, name=operation.aggregate, seen=None, wanted={})
        case DeleteAggregate():
            left = {key: value for key, value in operation.metadata.items() if key == MARK}
            return AggregateChange(why=why, name=operation.aggregate, seen=left, wanted=None)
        case SetMetadata():
            seen = {key: operation.before.get(key) for key in operation.values}
            return MetadataChange(why=why, name=operation.aggregate, seen=seen, wanted=dict(operation.values))
        case AddHost() | RemoveHost():
            wanted = isinstance(operation, AddHost)
            return HostChange(
                why=why,
                name=f"{operation.host} in the aggregate {operation.aggregate}",
                about={"host": operation.host, "aggregate": operation.aggregate},
                seen=not wanted,
                wanted=wanted,
            )
        case AddTrait() | RemoveTrait():
            wanted = isinstance(operation, AddTrait)
            return TraitChange(
                why=why,
                id=operation.provider,
                name=f"trait {operation.trait} of {operation.host}",
                about={"host": operation.host, "trait": operation.trait},
                seen=not wanted,
                wanted=wanted,
            )


def _aggregate(api: Connection, name: str) -> Aggregate | None:
    return next((found for found in compute.aggregates(api) if found.name == name), None)

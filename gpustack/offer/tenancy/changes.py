"""The changes of tenancy: aggregates, their metadata and hosts, traits of hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gpustack.changes.change import CloudChange, Value
from gpustack.cloud import Connection, compute, placement
from gpustack.nova_options.aggregates import PROJECTS, Aggregate
from gpustack.offer.flavor.flavors import present_flavors
from gpustack.offer.tenancy.model import MARK, is_foreign, is_ours
from gpustack.spec.extra_specs import TRAIT, required_traits

_METADATA = (MARK, f"{TRAIT}*", f"{PROJECTS}*")


class _ChangeOfAggregate(CloudChange):
    @property
    def aggregate(self) -> str:
        """The name of the aggregate."""
        return self.name

    @property
    def place(self) -> str:
        return f"aggregate:{self.aggregate}"

    def _present(self, api: Connection) -> Aggregate | None:
        return next((found for found in compute.aggregates(api) if found.name == self.aggregate), None)

    def foreign(self, api: Connection) -> str:
        return "the aggregate does not have gpustack's mark" if is_foreign(self._present(api)) else ""


@dataclass(frozen=True, kw_only=True)
class AggregateChange(_ChangeOfAggregate):
    """Create or delete an aggregate; the value is its metadata. ``about`` has those that a deletion loses."""

    object_kind: ClassVar[str] = "aggregate"
    undone: ClassVar[str] = "creates it with its metadata, or deletes it if it contains no host"
    written: ClassVar[tuple[str, ...]] = _METADATA
    value: ClassVar[Any] = dict[str, str] | None

    @classmethod
    def of(cls, name: str, metadata: Mapping[str, str] | None, why: str) -> Self:
        """The change that creates an aggregate, or deletes one with these metadata."""
        if metadata is None:
            return cls(why=why, name=name, seen=None, wanted={})
        left = {key: value for key, value in metadata.items() if key == MARK}
        return cls(why=why, name=name, seen=left, wanted=None, about=metadata)

    def describe(self) -> str:
        return f"delete the aggregate {self.name}" if self.wanted is None else f"create the aggregate {self.name}"

    def details(self) -> list[str]:
        return []

    def to_dict(self) -> dict[str, object]:
        data: dict[str, object] = {"kind": f"{self.verb}_aggregate", "why": self.why, "aggregate": self.name}
        return data if self.seen is None else {**data, "metadata": dict(self.about)}

    def read(self, api: Connection) -> Value:
        found = self._present(api)
        if found is None and self.wanted is None:  # somebody may have given it another name
            known = (other for other in compute.aggregates(api) if is_ours(other) and str(other.id) == self.id)
            return next(({"name": other.name} for other in known), None)
        return None if found is None else dict(found.metadata)

    def permitted(self) -> str:
        once = (self.seen is None) != (self.wanted is None)
        return super().permitted() if once else "an aggregate is created or deleted"

    def obstacle(self, api: Connection, made: Sequence[CloudChange]) -> str:
        found = self._present(api) if self.wanted is None else None
        removed = {change.about.get("host") for change in made if change.place == self.place}
        hosts = sorted(found.hosts - removed) if found else []
        return f"it contains {', '.join(hosts)}" if hosts else ""

    def carry_out(self, api: Connection) -> str:
        if self.wanted is None:
            if found := self._present(api):
                compute.delete_aggregate(api, found.id)
            return ""
        created = compute.create_aggregate(api, self.name)
        if self.wanted:
            compute.change_aggregate(api, created, "set_metadata", {"metadata": dict(self.wanted)})
        return str(created)


@dataclass(frozen=True, kw_only=True)
class MetadataChange(_ChangeOfAggregate):
    """Set metadata of an aggregate; None removes a key.

    If others have metadata in it, so that only gpustack's part is removed, ``about`` has ``shared``.
    """

    object_kind: ClassVar[str] = "aggregate_metadata"
    written: ClassVar[tuple[str, ...]] = _METADATA
    value: ClassVar[Any] = dict[str, str | None]

    @classmethod
    def of(cls, name: str, values: Mapping[str, str | None], before: Mapping[str, str], why: str, **about: str) -> Self:
        """The change of these values; ``before`` has all metadata."""
        return cls(why=why, name=name, seen={key: before.get(key) for key in values}, wanted=dict(values), about=about)

    def describe(self) -> str:
        return f"change the metadata of the aggregate {self.name}: {self.why}"

    def to_dict(self) -> dict[str, object]:
        before = {key: value for key, value in self.seen.items() if value is not None}
        values = {"aggregate": self.name, "values": dict(self.wanted), "before": before}
        return {"kind": "set_metadata", "why": self.why, **values}

    def read(self, api: Connection) -> Value:
        found = self._present(api)
        if found is None and any(self.wanted.values()):
            return None
        return {key: found.metadata.get(key) if found else None for key in self.wanted}

    def foreign(self, api: Connection) -> str:
        return "" if self.about.get("shared") else super().foreign(api)

    def obstacle(self, api: Connection, made: Sequence[CloudChange]) -> str:
        """The plan takes over an aggregate only if it has no content; others may have added some since."""
        return self.foreign(api) if self.wanted.get(MARK) and not self.seen.get(MARK) else ""

    def carry_out(self, api: Connection) -> str:
        if found := self._present(api):
            compute.change_aggregate(api, found.id, "set_metadata", {"metadata": dict(self.wanted)})
        return ""


@dataclass(frozen=True, kw_only=True)
class HostChange(_ChangeOfAggregate):
    """Add a host to an aggregate, or remove it: the value is whether the aggregate contains the host."""

    object_kind: ClassVar[str] = "aggregate_host"
    value: ClassVar[Any] = bool
    described: ClassVar[tuple[str, ...]] = ("host", "aggregate")

    @property
    def aggregate(self) -> str:
        return self.about["aggregate"]

    @classmethod
    def of(cls, aggregate: str, host: str, why: str, *, wanted: bool) -> Self:
        """The change that adds a host, or removes it."""
        name, about = f"{host} in the aggregate {aggregate}", {"host": host, "aggregate": aggregate}
        return cls(why=why, name=name, about=about, seen=not wanted, wanted=wanted)

    def describe(self) -> str:
        host, aggregate = self.about["host"], self.about["aggregate"]
        if self.wanted:
            return f"add {host} to the aggregate {aggregate}"
        return f"remove {host} from the aggregate {aggregate}: {self.why}"

    def to_dict(self) -> dict[str, object]:
        place = {"aggregate": self.about["aggregate"], "host": self.about["host"]}
        return {"kind": "add_host" if self.wanted else "remove_host", "why": self.why, **place}

    def remaining(self, cloud: Connection) -> Self | None:
        return self if not self.wanted or compute.services(cloud, self.about["host"]) else None

    def read(self, api: Connection) -> Value:
        found = self._present(api)
        return (None if self.wanted else False) if found is None else found.has(self.about["host"])

    def carry_out(self, api: Connection) -> str:
        if found := self._present(api):
            action = "add_host" if self.wanted else "remove_host"
            compute.change_aggregate(api, found.id, action, {"host": self.about["host"]})
        return ""


@dataclass(frozen=True, kw_only=True)
class TraitChange(CloudChange):
    """Add a trait to the provider of a host, or remove it: the value is whether the provider has the trait."""

    object_kind: ClassVar[str] = "trait"
    undone: ClassVar[str] = "removes it from the host, or adds it again; Placement keeps a trait that no host has"
    value: ClassVar[Any] = bool
    described: ClassVar[tuple[str, ...]] = ("host", "trait")

    @classmethod
    def of(cls, node: compute.Hypervisor, trait: str, why: str, *, wanted: bool) -> Self:
        """The change that adds a trait to a compute node, or removes it."""
        name, about = f"trait {trait} of {node.host}", {"host": node.host, "trait": trait}
        return cls(why=why, id=node.uuid, name=name, about=about, seen=not wanted, wanted=wanted)

    def describe(self) -> str:
        host, trait = self.about["host"], self.about["trait"]
        if self.wanted:
            return f"add the trait {trait} to {host}: {self.why}"
        return f"remove the trait {trait} from {host}: {self.why}"

    def to_dict(self) -> dict[str, object]:
        place = {"host": self.about["host"], "provider": self.id, "trait": self.about["trait"]}
        return {"kind": "add_trait" if self.wanted else "remove_trait", "why": self.why, **place}

    def remaining(self, cloud: Connection) -> Self | None:
        return self if not self.wanted or placement.traits(cloud, self.id) else None

    def read(self, api: Connection) -> Value:
        return self.id in placement.bearers(api, self.about["trait"])

    def obstacle(self, api: Connection, made: Sequence[CloudChange]) -> str:
        trait = self.about["trait"]
        others = placement.bearers(api, trait) - {self.id, *(c.id for c in made if c.about.get("trait") == trait)}
        if self.wanted or others or any(change.object_kind == "flavor" for change in made):
            return ""
        flavors = sorted(f.name for f in present_flavors(api).flavors() if trait in required_traits(f.extra_specs))
        return f"no other host has it, and flavors require it: {', '.join(flavors)}" if flavors else ""

    def carry_out(self, api: Connection) -> str:
        placement.set_trait(api, self.id, self.about["trait"], wanted=self.wanted)
        return ""

    def permitted(self) -> str:
        return "" if self.about["trait"].startswith("CUSTOM_") else "gpustack changes custom traits only"

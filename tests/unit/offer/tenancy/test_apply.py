"""Operations are carried out in order; an interruption names how far they got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from gpustack.base.errors import ApplyError, CloudError
from gpustack.offer.tenancy.apply import apply
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

OPERATIONS: list[TenancyOperation] = [
    AddTrait(why="w", host="gpu1", provider="p", trait="T"),
    CreateAggregate(why="w", aggregate="new"),
    SetMetadata(why="w", aggregate="new", values={"a": "b", "c": None}, before={"c": "d"}),
    AddHost(why="w", aggregate="new", host="gpu1"),
    RemoveHost(why="w", aggregate="old", host="gpu1"),
    RemoveTrait(why="w", host="gpu1", provider="p", trait="T"),
    DeleteAggregate(why="w", aggregate="old", metadata={}),
]


@dataclass
class _Recorder:
    """A stand-in for a cloud: the calls, and the number of the call that fails."""

    fails: int = -1
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def _note(self, *call: object) -> None:
        if len(self.calls) == self.fails:
            raise CloudError("no answer")
        self.calls.append(call)

    def create(self, name: str) -> int:
        self._note("create", name)
        return 9

    def delete(self, aggregate: int) -> None:
        self._note("delete", aggregate)

    def set_metadata(self, aggregate: int, values: Mapping[str, str | None]) -> None:
        self._note("set_metadata", aggregate, dict(values))

    def add_host(self, aggregate: int, host: str) -> None:
        self._note("add_host", aggregate, host)

    def remove_host(self, aggregate: int, host: str) -> None:
        self._note("remove_host", aggregate, host)

    def add_trait(self, provider: str, trait: str) -> None:
        self._note("add_trait", provider, trait)

    def remove_trait(self, provider: str, trait: str) -> None:
        self._note("remove_trait", provider, trait)


def test_operations_are_carried_out_in_order() -> None:
    cloud, done = _Recorder(), []
    apply(cloud, OPERATIONS, {"old": 1}, done.append)
    assert cloud.calls == [
        ("add_trait", "p", "T"),
        ("create", "new"),
        ("set_metadata", 9, {"a": "b", "c": None}),
        ("add_host", 9, "gpu1"),
        ("remove_host", 1, "gpu1"),
        ("remove_trait", "p", "T"),
        ("delete", 1),
    ]
    assert done == OPERATIONS


def test_a_failure_stops_and_names_the_rest() -> None:
    cloud = _Recorder(fails=3)
    with pytest.raises(ApplyError, match="add gpu1 to the aggregate new: no answer; 3 of 7 operations were carried"):
        apply(cloud, OPERATIONS, {"old": 1})
    assert len(cloud.calls) == 3

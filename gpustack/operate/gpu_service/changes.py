"""Reservations of GPUs in Placement as changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from gpustack.base.errors import ApplyError
from gpustack.changes.change import CloudChange
from gpustack.cloud import Connection, placement
from gpustack.cloud.placement import Inventory


@dataclass(frozen=True, kw_only=True)
class ReservationChange(CloudChange):
    """Reserve a GPU in Placement, or release it; the value is the reserved amount of each resource class.

    ``about`` has the place and the reason of the operator, which an undo keeps.
    """

    kind: ClassVar[str] = "set_inventory"
    object_kind: ClassVar[str] = "reservation"
    undone: ClassVar[str] = "reserves the former amounts"
    value: ClassVar[Any] = dict[str, Annotated[int, Field(ge=0)]]
    described: ClassVar[tuple[str, ...]] = ("place",)
    written: ClassVar[tuple[str, ...]] = placement.DEVICE_CLASSES

    def describe(self) -> str:
        verb = "release" if sum(self.wanted.values()) < sum(self.seen.values()) else "reserve"
        amounts = ", ".join(f"{name} {self.seen[name]} → {of}" for name, of in sorted(self.wanted.items()))
        return f"{verb} {self.about['place']} in Placement: reserved {amounts}"

    def details(self) -> list[str]:
        return []

    def read(self, api: Connection) -> Mapping[str, int] | None:
        if (present := placement.inventory(api, self.id)) is None:
            return None if any(self.wanted.values()) else dict(self.wanted)  # nothing to release
        return present.reserved

    def carry_out(self, api: Connection) -> str:
        if (present := placement.inventory(api, self.id)) is None:
            raise ApplyError("the resource provider of the GPU is gone")
        placement.write_inventory(api, present, present.with_reserved(self.wanted))
        return self.id


def reservation(place: str, inventory: Inventory, wanted: Mapping[str, int], *, why: str) -> ReservationChange:
    """The change that reserves these amounts of a GPU."""
    return ReservationChange(
        why=why,
        id=inventory.provider,
        name=f"{place} in Placement",
        about={"place": place, "reason": why},
        seen=inventory.reserved,
        wanted={name: wanted.get(name, 0) for name in inventory.reserved},
    )

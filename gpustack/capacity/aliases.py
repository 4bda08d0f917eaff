"""The aliases of a spec that match a device, as Nova matches them. Pure."""

from __future__ import annotations

from collections.abc import Collection

from gpustack.fleet.cards import kinds_of
from gpustack.spec.model import Spec


class Aliases:
    """The aliases of a spec.

    :ivar scheduled: whether Nova schedules by Placement's devices, so that an alias matches by resource class and
        traits.
    """

    def __init__(self, spec: Spec) -> None:
        self.scheduled = spec.nova is not None and spec.nova.placement == "schedule"
        self._kinds = tuple(kinds_of(spec))

    def of(self, vendor: str, product: str, resource_class: str = "", traits: Collection[str] = ()) -> frozenset[str]:
        """The aliases that match a device.

        :param vendor: empty if the ids are unknown.
        :param resource_class: of the device in Placement; empty if Placement does not have it.
        :param traits: of the device in Placement.
        """
        classes, has = {name.strip() for name in resource_class.split(",")}, set(traits)
        by_class = bool(resource_class) and (self.scheduled or not vendor)
        return frozenset(
            kind.alias
            for kind in self._kinds
            if (not vendor or kind.ids == (vendor, product))
            and (not by_class or (kind.resource_class in classes and kind.traits <= has))
        )

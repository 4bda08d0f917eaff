"""The aliases of a spec that match a device, as Nova matches them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from gpustack.fleet.cards import Kind, kinds_of
from gpustack.nova_options.pci_values import traits as normalized
from gpustack.spec.attributes import required
from gpustack.spec.model import Spec


class Aliases:
    """The aliases of a spec.

    :ivar scheduled: whether Nova schedules by Placement's devices, so that an alias matches by resource class and
        traits.
    """

    def __init__(self, spec: Spec) -> None:
        self.scheduled = spec.nova is not None and spec.nova.placement == "schedule"
        self._kinds = tuple(_requested(spec))

    def of(
        self,
        vendor: str,
        product: str,
        resource_class: str = "",
        traits: Collection[str] = (),
        *,
        dev_type: str = "",
    ) -> frozenset[str]:
        """The aliases that match a device.

        :param vendor: empty if the ids are unknown.
        :param resource_class: of the device in Placement; empty if Placement does not have it.
        :param traits: of the device in Placement.
        :param dev_type: of the device in Nova; empty if unknown.
        """
        classes, has = {name.strip() for name in resource_class.split(",")}, set(traits)
        by_class = bool(resource_class) and (self.scheduled or not vendor)
        return frozenset(
            kind.alias
            for kind in self._kinds
            if (not vendor or kind.ids == (vendor, product))
            and (not dev_type or kind.virtual == (dev_type == "type-VF"))
            and (not by_class or (kind.resource_class in classes and kind.traits <= has))
        )


def _requested(spec: Spec) -> Iterator[Kind]:
    """The models with the traits that each of their aliases requires."""
    for kind in kinds_of(spec):
        wanted = {kind.alias: spec.required_traits_of(kind.name)}
        wanted |= {alias: required(spec.selections[alias]) for alias in spec.aliases_of(kind.name)[1:]}
        for alias, names in wanted.items():
            yield replace(kind, alias=alias, traits=normalized({"traits": ",".join(names)}))

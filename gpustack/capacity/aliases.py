"""The aliases of a spec that match a device, as Nova matches them. Pure."""

from __future__ import annotations

from gpustack.nova_options.pci_values import reported_class
from gpustack.spec.model import Spec


class Aliases:
    """The aliases of a spec.

    :ivar scheduled: whether Nova schedules by Placement's devices, so that an alias matches by resource class.
    """

    def __init__(self, spec: Spec) -> None:
        self.scheduled = spec.nova is not None and spec.nova.placement == "schedule"
        self._models = [
            (
                spec.alias_of(name),
                (model.match.vendor, model.match.product),
                reported_class(model.resource_class, model.match.vendor, model.match.product),
            )
            for name, model in spec.models.items()
        ]

    def of(self, vendor: str, product: str, resource_class: str = "") -> frozenset[str]:
        """The aliases that match a device.

        :param vendor: empty if the ids are unknown.
        :param resource_class: of the device in Placement; empty if Placement does not have it.
        """
        classes = {name.strip() for name in resource_class.split(",")}
        by_class = bool(resource_class) and (self.scheduled or not vendor)
        return frozenset(
            alias
            for alias, ids, of_class in self._models
            if (not vendor or ids == (vendor, product)) and (not by_class or of_class in classes)
        )

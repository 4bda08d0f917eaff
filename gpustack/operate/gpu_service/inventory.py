"""The inventory of a GPU's resource provider: read it, reserve it, release it.

nova-compute never changes ``reserved`` of a device, and a reserved GPU keeps its instance
(``nova/compute/pci_placement_translator.py``). Each write carries the generation that was read: Placement refuses it
(409) if the provider changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import ApplyError
from gpustack.cloud.session import Refused, raise_refusal, translated_errors
from gpustack.fleet.requests import get, well_formed

if TYPE_CHECKING:
    from openstack.connection import Connection

VERSION = "1.31"
"""Train, as for reading; from 1.26 on, ``reserved`` may equal ``total``."""
_ATTEMPTS = 4
_MISSING, _CONFLICT = 404, 409


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The inventory of a resource provider.

    :ivar classes: all fields of each resource class, as Placement has them.
    """

    provider: str
    generation: int
    classes: Mapping[str, Mapping[str, Any]]

    @property
    def is_reserved(self) -> bool:
        """Whether nothing can be allocated."""
        return all(int(fields["reserved"]) >= int(fields["total"]) for fields in self.classes.values())

    @property
    def is_open(self) -> bool:
        """Whether nothing is reserved."""
        return not any(int(fields["reserved"]) for fields in self.classes.values())

    def with_reserved(self, *, everything: bool) -> Inventory:
        """The same inventory with everything reserved, or nothing."""
        classes = {
            name: {**fields, "reserved": fields["total"] if everything else 0} for name, fields in self.classes.items()
        }
        return replace(self, classes=classes)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {fields['reserved']} of {fields['total']}" for name, fields in sorted(self.classes.items())
        )


def read(cloud: Connection, provider: str) -> Inventory | None:
    """Return the inventory of a provider; None if the provider is gone.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "read the inventory of the GPU"
    try:
        content = get(cloud, "placement", _path(provider), doing, version=VERSION)
    except Refused as error:
        if error.status == _MISSING:
            return None
        raise
    with well_formed(doing):
        classes = {str(name): dict(fields) for name, fields in content["inventories"].items()}
        inventory = Inventory(
            provider=provider, generation=int(content["resource_provider_generation"]), classes=classes
        )
        _ = inventory.is_reserved  # both numbers are there
        return inventory


def write(cloud: Connection, before: Inventory, after: Inventory) -> None:
    """Replace an inventory, unless it changed since it was read.

    nova-compute increases the generation also without changing the inventory, so a refused write is repeated if the
    inventory is as it was shown.

    :raises ApplyError: if the inventory changed.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    doing = "write the inventory of the GPU"
    generation = before.generation
    for _attempt in range(_ATTEMPTS):
        body = {"resource_provider_generation": generation, "inventories": after.classes}
        with translated_errors(doing):
            answer = cloud.placement.put(_path(before.provider), json=body, microversion=VERSION)
        if answer.status_code != _CONFLICT:
            raise_refusal(answer, doing, None)
            return
        current = read(cloud, before.provider)
        if current is None or current.classes != before.classes:
            break
        generation = current.generation
    raise ApplyError("the inventory of the GPU changed meanwhile; nothing was written", remedy="run the command again")


def _path(provider: str) -> str:
    return f"/resource_providers/{provider}/inventories"

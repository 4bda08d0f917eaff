"""Recognise GPUs among the devices of Nova and Placement, and name their models.

Placement has a resource class for each device, which contains the PCI ids unless the configuration names another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gpustack.facts.gpus import is_gpu
from gpustack.facts.model import Function
from gpustack.nova_options.pci_values import reported_class
from gpustack.pci import catalogue
from gpustack.spec.model import Spec

_BY_IDS = re.compile(r"CUSTOM_PCI_([0-9A-F]{4})_([0-9A-F]{4})\Z")
_MAKERS = ("10de", "1002")
"""Vendors whose unknown products are GPUs; Intel's, for example, may be network cards."""


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models of a spec by alias and by resource class; empty without a spec.

    :ivar ids: the PCI ids of a resource class that a single model has.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def models_of(spec: Spec) -> Models:
    """The models of a spec, by the names of their cards."""
    aliases: dict[str, set[str]] = {}
    ids: dict[str, set[tuple[str, str]]] = {}
    for name, model in spec.models.items():
        match = model.match
        vendor, product = match.vendor or "", match.product or ""
        aliases.setdefault(spec.alias_of(name), set()).add(name_of(vendor, product) or name)
        if vendor and product and (reported := reported_class(model.resource_class, vendor, product)):
            ids.setdefault(reported, set()).add((vendor, product))
    return Models(
        aliases={alias: " or ".join(sorted(names)) for alias, names in aliases.items()},
        ids={name: next(iter(pairs)) for name, pairs in ids.items() if len(pairs) == 1},
    )


def ids_of(resource_class: str, models: Models) -> tuple[str, str]:
    """Vendor and product of a resource class; empty if it does not contain them."""
    match = _BY_IDS.match(resource_class)
    return (match[1].lower(), match[2].lower()) if match else models.ids.get(resource_class, ("", ""))


def name_of(vendor: str, product: str, function: Function | None = None) -> str:
    """The name of a card, from the catalogue, else vendor and ids; empty without ids."""
    if not vendor:
        return ""
    subsystem = (function.subsystem_vendor, function.subsystem_product) if function else (None, None)
    card = catalogue.lookup(vendor, product, *subsystem)
    if card is not None:
        return card.full_name
    return f"{catalogue.vendor_name(vendor) or 'device'} [{vendor}:{product}]"


def is_listed(
    vendor: str, product: str, address: str, siblings: Collection[str], function: Function | None, *, virtual: bool
) -> bool:
    """Whether a device is a GPU, so that the fleet lists it.

    :param siblings: the addresses of known GPUs of the host.
    :param function: the function in the facts of the host; None without facts.
    :param virtual: whether it is a virtual function.
    """
    if function is not None and not virtual:
        return is_gpu(function)
    if not vendor:
        return True  # a resource class of the configuration; nothing shows what it is for
    if catalogue.lookup(vendor, product) is not None:
        return True
    if vendor not in _MAKERS or catalogue.is_nvswitch(vendor, product, ""):
        return False
    return virtual or address.endswith(".0") or f"{address[:-1]}0" not in siblings

"""Recognise GPUs among the devices of Nova and Placement, and name their models.

Placement has a resource class for each device, which contains the PCI ids unless the configuration names another.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.base.by_key import by_key
from gpustack.cloud.servers import requested_classes
from gpustack.hosts.facts.gpus import is_gpu
from gpustack.hosts.facts.model import Function
from gpustack.nova_options.mediated import required_traits
from gpustack.nova_options.pci_values import reported_class, traits
from gpustack.nova_options.scheduler import Scheduler, by_devices
from gpustack.pci import catalogue
from gpustack.pci.classes import is_gpu_class
from gpustack.spec.extra_specs import ALIAS, parse_alias
from gpustack.spec.extra_specs import required_traits as required_traits_of
from gpustack.spec.model import Spec, models_for

_BY_IDS = re.compile(r"CUSTOM_PCI_([0-9A-F]{4})_([0-9A-F]{4})\Z")
_MAKERS = ("10de", "1002")
"""Vendors whose unknown products are GPUs; Intel's, for example, may be network cards."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model of a spec as Placement has it.

    :ivar ids: vendor and product; empty if the model matches otherwise.
    :ivar resource_class: empty if it is not known.
    :ivar traits: of its devices; models of one resource class can differ by them.
    :ivar virtual: whether its devices are virtual functions, which can have the ids of their card.
    """

    name: str
    alias: str
    ids: tuple[str, str]
    resource_class: str = ""
    traits: frozenset[str] = frozenset()
    virtual: bool = False


@dataclass(frozen=True, kw_only=True)
class Models:
    """What a spec has for the fleet; empty without a spec.

    :ivar aliases: the names of models by alias.
    :ivar kinds: the models with PCI ids, by resource class.
    :ivar expects: whether a host, by its name, has GPUs of the spec.
    :ivar scheduled: whether Nova schedules by Placement's devices; None if unknown.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, tuple[Kind, ...]] = field(default_factory=dict)
    expects: Callable[[str], bool] = lambda _host: False
    scheduled: bool | None = None


def kinds_of(spec: Spec, names: Iterable[str] | None = None) -> Iterator[Kind]:
    """The models of a spec, or those with the given names, as Placement has them."""
    for name in spec.models if names is None else names:
        model = spec.models[name]
        yield Kind(
            name=name,
            alias=spec.alias_of(name),
            ids=model.ids,
            resource_class=reported_class(spec.resource_class_of(name), *model.ids) or "",
            traits=traits({"traits": ",".join(spec.traits_of(name))}),
            virtual=model.is_virtual,
        )


def vgpu_requests(spec: Spec) -> dict[str, tuple[str, frozenset[str]]]:
    """The resource classes and traits by which flavors request the vGPUs of a spec; they have no alias.

    The keys, such as ``VGPU CUSTOM_LARGE``, replace it.
    """
    models = spec.vgpu_classes.items()
    pairs = [(klass, frozenset(own)) for name, klass in models for own in ((), required_traits(spec, name))]
    return {" ".join((klass, *sorted(own))): (klass, own) for klass, own in pairs}


def requested_gpus(spec: Spec, specs: Mapping[str, str]) -> dict[str, int]:
    """The number of GPUs that extra specs request, by alias; vGPUs that they request by class have that of their model.

    If no model with the class has all its traits in the extra specs, the aliases of all of them.
    """
    gpus, traits_here = parse_alias(specs.get(ALIAS, "")), required_traits_of(specs)
    for klass, amount in requested_classes(specs).items():
        models = [name for name, of_model in spec.vgpu_classes.items() if of_model == klass]
        exact = [name for name in models if traits_here.issuperset(required_traits(spec, name))]
        for alias in dict.fromkeys(map(spec.alias_of, exact or models)):
            gpus[alias] = gpus.get(alias, 0) + amount
    return gpus


def models_of(spec: Spec, scheduler: Scheduler | None = None) -> Models:
    """The models of a spec, by the names of their cards.

    :param scheduler: the options of nova-scheduler; None without configuration files.
    """
    kinds = list(kinds_of(spec))
    aliases = by_key((alias, kind.name) for kind in kinds for alias in spec.aliases_of(kind.name))
    by_class = by_key((kind.resource_class, kind) for kind in kinds if all(kind.ids) and kind.resource_class)
    return Models(
        aliases={alias: cards_of(spec, names) for alias, names in aliases.items()},
        kinds={name: tuple(of_class) for name, of_class in by_class.items()},
        expects=lambda host: bool(models_for(spec, host)),
        scheduled=by_devices(scheduler, spec),
    )


def cards_of(spec: Spec, models: Iterable[str]) -> str:
    """The cards of models that nothing distinguishes, by the name that the fleet shows."""
    return " or ".join(sorted({name_of(*spec.models[name].ids) or name for name in models}))


def ids_of(resource_class: str, models: Models, traits: Collection[str] = ()) -> tuple[str, str]:
    """Vendor and product of a resource class; empty if neither it nor a spec has them.

    :param traits: of the device. Of several models with this class, the one with most of them counts.
    """
    if match := _BY_IDS.match(resource_class):
        return match[1].lower(), match[2].lower()
    kinds = models.kinds.get(resource_class, ())
    if len({kind.ids for kind in kinds}) > 1:
        fitting = [kind for kind in kinds if kind.traits <= set(traits)]
        most = max((len(kind.traits) for kind in fitting), default=0)
        kinds = tuple(kind for kind in fitting if len(kind.traits) == most)
    found = {kind.ids for kind in kinds}
    return found.pop() if len(found) == 1 else ("", "")


def name_of(vendor: str, product: str, function: Function | None = None) -> str:
    """The name of a card, from the catalogue, else vendor and ids; empty without ids."""
    if not vendor:
        return ""
    subsystem = (function.subsystem_vendor, function.subsystem_product) if function else (None, None)
    if (card := catalogue.lookup(vendor, product, *subsystem)) is not None:
        return card.full_name
    if (card := catalogue.card_of_function(vendor, product)) is not None:
        return f"{card.full_name} (virtual function)"
    return f"{catalogue.vendor_name(vendor) or 'device'} [{vendor}:{product}]"


def is_listed(
    vendor: str, product: str, address: str, siblings: Collection[str], function: Function | None, *, virtual: bool
) -> bool:
    """Whether a device is a GPU, so that the fleet lists it.

    :param siblings: the addresses of known GPUs of the host.
    :param function: the function in the facts of the host; None without facts.
    :param virtual: whether it is a virtual function.
    """
    if function is not None:
        return is_gpu_class(function.pci_class) if function.physical_function is not None else is_gpu(function)
    # Without a vendor, it is a resource class of the configuration, and nothing shows what that is for.
    if not vendor or catalogue.lookup(vendor, product) is not None:
        return True
    if vendor not in _MAKERS or catalogue.is_nvswitch(vendor, product, ""):
        return False
    return virtual or address.endswith(".0") or f"{address[:-1]}0" not in siblings

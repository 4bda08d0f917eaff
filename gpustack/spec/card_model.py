"""The model of a PCI function."""

from collections.abc import Mapping

from gpustack.base.errors import SpecError
from gpustack.hosts.facts.model import Function
from gpustack.spec.models import Match, Model, apart


def matches(match: Match, function: Function) -> bool:
    """Whether a function has all values of a match. A value that the facts lack (``None``) matches no given value."""
    return (
        (match.vendor, match.product) == (function.vendor, function.product)
        and match.subsystem_vendor in (None, function.subsystem_vendor)
        and match.subsystem_product in (None, function.subsystem_product)
        and match.pci_class in (None, function.pci_class[:4])
        and match.virtual == (function.physical_function is not None)
        and (not match.addresses or (function.physical_function or str(function.bdf)) in match.addresses)
    )


def narrowing(match: Match) -> dict[str, frozenset[str | None]]:
    """The keys of a match beyond vendor and product, each with its matching values."""
    required: dict[str, frozenset[str | None]] = {
        "subsystem_vendor": frozenset({match.subsystem_vendor}),
        "subsystem_product": frozenset({match.subsystem_product}),
        "class": frozenset({match.pci_class}),
        "addresses": frozenset(match.addresses),
        "function": frozenset({match.function}),
    }
    return {key: values for key, values in required.items() if values - {None}}


def disjoint(match: Match, other: Match) -> bool:
    """Whether no function can match both."""
    if (match.vendor, match.product) != (other.vendor, other.product):
        return True
    required, other_required = narrowing(match), narrowing(other)
    return any(not required[key] & other_required[key] for key in required.keys() & other_required.keys())


def within(narrow: Match, wide: Match) -> bool:
    """Whether ``narrow`` has all conditions of ``wide`` and more; a card that matches both belongs to ``narrow``."""
    if (narrow.vendor, narrow.product) != (wide.vendor, wide.product):
        return False
    required, wide_required = narrowing(narrow), narrowing(wide)
    return required != wide_required and all(
        key in required and required[key] <= values for key, values in wide_required.items()
    )


def alike(match: Match, other: Match) -> bool:
    """Whether a function can match both, and neither is more specific."""
    return not (disjoint(match, other) or within(match, other) or within(other, match))


def candidates(models: Mapping[str, Model], own: Mapping[str, Model]) -> dict[str, Model]:
    """The models among which :func:`model_of` selects on a host, with its own models.

    A card can be passed through on one host and shared on another: models of other hosts are left out if they match the
    same cards as one of the host.

    :raises SpecError: if two models of the host match the same cards, unless these have vGPUs of several types.
    """
    for name, model in own.items():
        for other, its in own.items():
            if name < other and alike(model.match, its.match) and apart((model.vgpu, its.vgpu)):
                remedy = "see the patterns under `hosts` that match the host; remove one of the models"
                raise SpecError(f"models {name} and {other} match the same cards of one host", remedy=remedy)
    return {
        name: model
        for name, model in models.items()
        if name in own or not any(alike(model.match, entry.match) for entry in own.values())
    }


def model_of(models: Mapping[str, Model], function: Function) -> str | None:
    """The name of a function's model, or None.

    If several models match, the most specific one is used: a board with a model of its own does not also belong to the
    general model. :mod:`gpustack.spec.check` reports any other ambiguity as an error, except between models of
    different hosts of which one is shared.
    """
    return next(iter(models_of(models, function)), None)


def models_of(models: Mapping[str, Model], function: Function) -> tuple[str, ...]:
    """The names of the models of a function, of which a card with several types of vGPUs has more than one."""
    fitting = [name for name, model in models.items() if matches(model.match, function)]
    return tuple(
        name for name in fitting if not any(within(models[other].match, models[name].match) for other in fitting)
    )

"""Which model a function is of."""

from __future__ import annotations

from collections.abc import Mapping

from gpustack.facts.model import Function
from gpustack.spec.model import Match, Model


def matches(match: Match, function: Function) -> bool:
    """Whether all that a match gives fits a function. What the facts don't know (``None``) fits nothing given."""
    return (
        (match.vendor, match.product) == (function.vendor, function.product)
        and match.subsystem_vendor in (None, function.subsystem_vendor)
        and match.subsystem_product in (None, function.subsystem_product)
        and match.pci_class in (None, function.pci_class[:4])
        and (not match.addresses or str(function.bdf) in match.addresses)
    )


def narrowing(match: Match) -> dict[str, frozenset[str | None]]:
    """What a match asks beyond vendor and product: each key that is given, with the values that fit it."""
    required: dict[str, frozenset[str | None]] = {
        "subsystem_vendor": frozenset({match.subsystem_vendor}),
        "subsystem_product": frozenset({match.subsystem_product}),
        "class": frozenset({match.pci_class}),
        "addresses": frozenset(match.addresses),
    }
    return {key: values for key, values in required.items() if values - {None}}


def disjoint(match: Match, other: Match) -> bool:
    """Whether no function can fit both."""
    if (match.vendor, match.product) != (other.vendor, other.product):
        return True
    required, other_required = narrowing(match), narrowing(other)
    return any(not required[key] & other_required[key] for key in required.keys() & other_required.keys())


def within(narrow: Match, wide: Match) -> bool:
    """Whether ``narrow`` asks all that ``wide`` asks, and more: then a card that fits both is of ``narrow``."""
    if (narrow.vendor, narrow.product) != (wide.vendor, wide.product):
        return False
    required, wide_required = narrowing(narrow), narrowing(wide)
    return required != wide_required and all(
        key in required and required[key] <= values for key, values in wide_required.items()
    )


def model_of(models: Mapping[str, Model], function: Function) -> str | None:
    """The name of the model that a function is of, or None.

    Of several models that fit, it is the one that asks most: a board that the spec describes more closely is
    not also one of the general kind. A checked spec leaves no other ambiguity.
    """
    fitting = [name for name, model in models.items() if matches(model.match, function)]
    for name in fitting:
        if all(name == other or within(models[name].match, models[other].match) for other in fitting):
            return name
    return fitting[0] if fitting else None

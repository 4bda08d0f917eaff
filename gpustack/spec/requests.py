"""The GPUs that the flavors of a spec request, by alias."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpustack.spec.model import Spec


def by_alias(spec: Spec, models: Mapping[str, int]) -> dict[str, int]:
    """The number of GPUs by alias, for numbers by model: models may share an alias."""
    counts: dict[str, int] = {}
    for model, count in models.items():
        counts[spec.alias_of(model)] = counts.get(spec.alias_of(model), 0) + count
    return counts


def requests(spec: Spec) -> Iterator[dict[str, int]]:
    """The number of GPUs by alias, for each flavor of the spec."""
    for flavor in spec.flavors.values():
        if flavor.gpus is not None:
            yield by_alias(spec, flavor.gpus)
        elif flavor.model is not None:
            yield from (by_alias(spec, {flavor.model: count}) for count in flavor.count)

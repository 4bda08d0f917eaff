"""The GPUs that the flavors of a spec request, by model and by alias."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gpustack.base.by_key import sums
from gpustack.spec.attributes import alias_name
from gpustack.spec.flavors import Flavor, named
from gpustack.spec.model import Spec

SLOW = 20_000
"""The number of candidates on all hosts for which a query of Placement takes seconds."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of the spec for one GPU count: a flavor of the cloud.

    :ivar name: its name in the cloud.
    :ivar count: the number of GPUs in total.
    :ivar models: the number of GPUs by model, or by alias of a selection.
    """

    flavor: Flavor
    name: str
    count: int
    models: Mapping[str, int]

    def size(self, name: Literal["vcpus", "ram", "disk"]) -> int | None:
        """A size of the flavor; None if it has none, or if the facts of hosts decide (``auto``)."""
        fixed: int | None = getattr(self.flavor, name)
        share: int | str | None = getattr(self.flavor.per_gpu, name)
        return fixed if fixed is not None else share * self.count if isinstance(share, int) else None


def entries(spec: Spec) -> Iterator[Entry]:
    """Yield the flavors of a spec, one for each number of GPUs."""
    for template, flavor in spec.flavors.items():
        for count, models in by_model(flavor):
            yield Entry(flavor=flavor, name=named(template, count), count=count, models=models)


def by_alias(spec: Spec, models: Mapping[str, int]) -> dict[str, int]:
    """The number of GPUs by alias, for numbers by model: models may share an alias."""
    return sums((spec.alias_of(model), count) for model, count in models.items())


def requests(spec: Spec) -> Iterator[dict[str, int]]:
    """The number of GPUs by alias, for each flavor of the spec."""
    return (by_alias(spec, entry.models) for entry in entries(spec))


def candidates(flavor: Mapping[str, int], host: Mapping[str, int]) -> int:
    """The number of Placement's candidates on a host: each GPU is a request group of its own.

    :param flavor: the number of GPUs by alias.
    :param host: the free GPUs by alias.
    """
    return math.prod(math.perm(host.get(alias, 0), count) for alias, count in flavor.items())


def restricted(spec: Spec) -> list[str]:
    """The names in the cloud of the flavors that only single projects may use (``access``)."""
    return [entry.name for entry in entries(spec) if entry.flavor.access is not None]


def models_of(spec: Spec, flavor: Flavor) -> tuple[str, ...]:
    """The models whose GPUs an instance of a flavor can get: those that have one of the requested aliases."""
    aliases = {spec.alias_of(model) for _, models in by_model(flavor) for model in models}
    models = {name for alias in aliases for name in spec.models_of(alias)}
    return tuple(filter(models.__contains__, spec.models))


def by_model(flavor: Flavor) -> Iterator[tuple[int, Mapping[str, int]]]:
    """The flavors of an entry of the spec: the number of GPUs, in total and by model (or alias of a selection)."""
    if flavor.gpus is not None:
        yield sum(flavor.gpus.values()), flavor.gpus
    elif flavor.model is not None:
        yield from ((count, {flavor.model: count}) for count in flavor.count)
    elif flavor.gpu is not None:
        alias = alias_name(flavor.gpu)
        yield from ((count, {alias: count}) for count in flavor.count)

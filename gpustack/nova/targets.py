"""The cards of a host that go to guests, by the spec: what the rest of this package is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpustack.facts.gpus import Gpu, gpus
from gpustack.facts.model import Host
from gpustack.facts.variants import choice
from gpustack.spec.hosts import models_for
from gpustack.spec.match import model_of
from gpustack.spec.model import Spec

Placement = Literal["off", "report", "schedule"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A GPU that goes to guests, its host, and the name of its model.

    :ivar variant: the VFIO variant driver that is to hold it; None for plain vfio-pci or pci-stub.
    """

    host: Host
    gpu: Gpu
    model: str
    variant: str | None = None


def alias_of(spec: Spec, model: str) -> str:
    """The alias by which flavors ask for a model."""
    return spec.models[model].alias or model


def targets(spec: Spec, host: Host) -> Iterator[Target]:
    """The GPUs that a host gives to guests, in the order of their addresses."""
    given = models_for(spec, host.hostname)
    for gpu in gpus(host) if given else ():
        name = model_of(spec.models, gpu.main)
        if name in given:
            model = spec.models[name]
            may_vary = model.driver == "vfio-pci" and model.variant
            variant = choice(host, gpu.main).module if may_vary else None
            yield Target(host=host, gpu=gpu, model=name, variant=variant)

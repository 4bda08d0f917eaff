"""Which GPUs and NVSwitches of a host a spec passes through, and which driver each of their functions gets.

Preparing the host, Nova's configuration and flavors all ask here, so that a GPU is never offered that is not bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.facts import variants
from gpustack.facts.gpus import Gpu, assemble, gpus, nvswitches
from gpustack.facts.model import Function, Host
from gpustack.linux.drivers import VFIO
from gpustack.spec.card_model import model_of
from gpustack.spec.hosts import models_for, options_for
from gpustack.spec.model import NvSwitch, Spec

_BOUND_SWITCHES = (NvSwitch.FULL, NvSwitch.SHARED)


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A GPU or NVSwitch that is passed through.

    :ivar gpu: its functions; of an NVSwitch, the switch is the main function.
    :ivar model: the spec's name for it; ``nvswitch`` for an NVSwitch.
    :ivar driver: the driver that the spec asks for, ``vfio-pci`` or ``pci-stub``.
    :ivar choices: the VFIO variant drivers that the host's kernels have for each function, where the spec leaves the
        choice to the kernels, by address.
    """

    host: Host
    gpu: Gpu
    model: str
    driver: str
    choices: Mapping[str, variants.Choice] = field(default_factory=dict)
    is_switch: bool = False

    @property
    def address(self) -> str:
        """The address of the GPU or switch itself."""
        return self.gpu.main.address

    @property
    def variant(self) -> str | None:
        """The VFIO variant driver of the GPU itself; None for plain vfio-pci or pci-stub."""
        return self._variant_of(self.gpu.main)

    @property
    def drivers(self) -> dict[str, str]:
        """The driver of each function, by address."""
        return {function.address: self.driver_of(function) for function in self.gpu.functions}

    def driver_of(self, function: Function) -> str:
        """The driver of one function."""
        return self._variant_of(function) or self.driver

    def _variant_of(self, function: Function) -> str | None:
        choice = self.choices.get(function.address)
        return choice.module if choice is not None else None


def assigned_gpus(spec: Spec, host: Host) -> tuple[Assigned, ...]:
    """The GPUs that a host passes through, in the order of their addresses."""
    models = models_for(spec, host.hostname)
    gpu_models = [(gpu, model_of(spec.models, gpu.main)) for gpu in gpus(host)] if models else []
    return tuple(
        _assign(host, gpu, name, models[name].driver, may_vary=models[name].variant)
        for gpu, name in gpu_models
        if name is not None and name in models
    )


def assigned_switches(spec: Spec, host: Host) -> tuple[Assigned, ...]:
    """The NVSwitches that a host passes through, on the driver of its first GPU."""
    if options_for(spec, host.hostname).nvswitch not in _BOUND_SWITCHES or not models_for(spec, host.hostname):
        return ()
    driver = next((assigned.driver for assigned in assigned_gpus(spec, host)), VFIO)
    switches = sorted(nvswitches(host), key=lambda function: function.bdf)
    return tuple(
        _assign(host, assemble(host, switch), "nvswitch", driver, may_vary=True, is_switch=True) for switch in switches
    )


def _assign(host: Host, gpu: Gpu, model: str, driver: str, *, may_vary: bool, is_switch: bool = False) -> Assigned:
    vary = may_vary and driver == VFIO
    choices = {f.address: variants.choice(host, f) for f in gpu.functions} if vary else {}
    return Assigned(host=host, gpu=gpu, model=model, driver=driver, choices=choices, is_switch=is_switch)

"""The GPUs and NVSwitches of a host that a spec assigns to passthrough, and the driver of each of their functions.

Host preparation, Nova's configuration and flavors all use it, so that Nova never offers a GPU that is not bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.hosts.facts import variants
from gpustack.hosts.facts.gpus import Gpu, assemble, gpus, nvswitches
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.drivers import VFIO
from gpustack.spec.card_model import candidates, model_of
from gpustack.spec.hosts import models_for, options_for
from gpustack.spec.model import NvSwitch, Spec

_VGPU_DRIVER = "nvidia"
_BOUND_SWITCHES = (NvSwitch.FULL, NvSwitch.SHARED)


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A GPU or NVSwitch that is assigned to passthrough.

    :ivar gpu: its functions; for an NVSwitch, the switch is the main function.
    :ivar model: the name of the model in the spec; ``nvswitch`` for an NVSwitch.
    :ivar driver: the driver in the spec, ``vfio-pci`` or ``pci-stub``.
    :ivar choices: the VFIO variant driver that the host's kernels have for each function, by address; empty if the
        spec does not permit variant drivers.
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
    def is_virtual(self) -> bool:
        """Whether it is a virtual function: created at boot, and bound by libvirt."""
        return self.gpu.main.physical_function is not None

    @property
    def variant(self) -> str | None:
        """The driver of the GPU itself that libvirt must not replace; None for plain vfio-pci or pci-stub.

        It is a VFIO variant driver; on virtual functions, NVIDIA's driver is one too (vGPU since Linux 6.8).
        """
        return self._variant_of(self.gpu.main)

    @property
    def drivers(self) -> dict[str, str]:
        """The driver of each function, by address."""
        return {function.address: self.driver_of(function) for function in self.gpu.functions}

    def driver_of(self, function: Function) -> str:
        """The driver of one function."""
        return self._variant_of(function) or self.driver

    def _variant_of(self, function: Function) -> str | None:
        if self.is_virtual and function.driver == _VGPU_DRIVER:
            return _VGPU_DRIVER
        choice = self.choices.get(function.address)
        return choice.module if choice is not None else None


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A physical function whose virtual functions are created at boot; the host keeps it.

    :ivar model: the name of the model in the spec; for a network card, that of the network.
    :ivar count: the number of virtual functions that instances get.
    :ivar product: the product id that the virtual functions must have; None if any will do.
    :ivar vgpu_type: NVIDIA's number of the type of each virtual function.
    """

    function: Function
    model: str
    count: int
    product: str | None = None
    vgpu_type: int | None = None
    is_network: bool = False

    @property
    def address(self) -> str:
        """The address of the physical function."""
        return self.function.address


def shared_functions(spec: Spec, host: Host) -> tuple[Shared, ...]:
    """The physical functions of a host that its spec shares, of any class, by address."""
    own = models_for(spec, host.hostname)
    models = {name: model.vfs for name, model in own.items() if model.vfs is not None}
    among = candidates(spec.models, own) if models else {}
    named = ((function, model_of(among, function)) for function in host.pci if models)
    return tuple(
        Shared(
            function=function,
            model=name,
            count=models[name].count,
            product=spec.models[name].ids[1],
            vgpu_type=models[name].vgpu_type,
        )
        for function, name in sorted(named, key=lambda pair: pair[0].bdf)
        if name in models
    )


def assigned_gpus(spec: Spec, host: Host) -> tuple[Assigned, ...]:
    """The GPUs of a host that are assigned to passthrough, and virtual functions of GPUs, by address."""
    models = models_for(spec, host.hostname)
    shared = {entry.address: entry for entry in shared_functions(spec, host)}
    cards = [gpu for gpu in (gpus(host) if models else ()) if gpu.main.address not in shared]
    parts = (Gpu(main=part) for card in cards for part in card.virtual)
    among = candidates(spec.models, models)
    gpu_models = [(gpu, model_of(among, gpu.main)) for gpu in (*cards, *parts)]
    gpu_models += [
        (Gpu(main=part), entry.model)
        for entry in shared.values()
        for part in sorted(host.virtual.get(entry.address, ()), key=lambda f: f.bdf)[: entry.count]
    ]
    gpu_models.sort(key=lambda pair: pair[0].main.bdf)
    return tuple(
        _assign(host, gpu, name, models[name].driver, may_vary=models[name].variant)
        for gpu, name in gpu_models
        if name is not None and name in models
    )


def assigned_switches(spec: Spec, host: Host) -> tuple[Assigned, ...]:
    """The NVSwitches of a host that are assigned to passthrough, with the driver of its first GPU."""
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

"""The GPUs and NVSwitches of a host that a spec assigns to passthrough, and the driver of each of their functions.

Host preparation, Nova's configuration and flavors all use it, so that Nova never offers a GPU that is not bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.hosts.facts import variants
from gpustack.hosts.facts.gpus import Gpu, assemble, gpus, nvswitches
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.vgpu_model import VgpuType
from gpustack.hosts.facts.vgpus import NVIDIA, framework, lacks_type, type_named
from gpustack.linux.drivers import VFIO
from gpustack.spec.card_model import candidates, model_of, models_of
from gpustack.spec.model import NvSwitch, Spec, models_for, options_for
from gpustack.spec.models import Model, Vgpu, memory

_BOUND_SWITCHES = (NvSwitch.FULL, NvSwitch.SHARED)
_ONE_TYPE = "Nova gives a card without virtual functions one type, and {model} precedes it"


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
        if self.is_virtual and function.driver == NVIDIA:
            return NVIDIA
        choice = self.choices.get(function.address)
        return choice.module if choice is not None else None


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A physical function whose virtual functions are created at boot; the host keeps it.

    :ivar model: the name of the model in the spec; for a network card, that of the network.
    :ivar count: the number of virtual functions that instances get.
    :ivar product: the product id that the virtual functions must have; None if any will do.
    :ivar vgpu_type: NVIDIA's number of the type of each virtual function.
    :ivar vgpu: the vGPUs by the name of their type.
    :ivar limit: the number of vGPUs in the spec; without it, ``count`` is the largest number that there can be.
    :ivar fault: why the name has no number; None if there is no name.
    :ivar first: the index of its first virtual function; those before it have types of other models.
    :ivar is_mixed: whether the card has types of several sizes, which NVIDIA's driver creates in its mixed-size mode.
    """

    function: Function
    model: str
    count: int
    product: str | None = None
    vgpu_type: int | None = None
    vgpu: Vgpu | None = None
    limit: int | None = None
    fault: str | None = None
    is_network: bool = False
    first: int = 0
    is_mixed: bool = False

    @property
    def address(self) -> str:
        """The address of the physical function."""
        return self.function.address

    @property
    def is_created(self) -> bool:
        """Whether the unit at boot creates virtual functions; the driver of other cards creates vGPUs without them."""
        is_parted = self.function.sriov_totalvfs and self.function.vgpu_framework != "mdev"
        return self.vgpu is None or bool(is_parted)

    def parts(self, host: Host) -> tuple[Function, ...]:
        """The virtual functions that instances get, as far as they exist."""
        return host.virtual.get(self.address, ())[self.first : self.first + self.count]

    def has_type(self, part: Function) -> bool:
        """Whether a virtual function of the card has the type that the spec wants, if it wants one."""
        if self.fault is not None:
            return False
        return self.vgpu_type is None or part.vgpu_type == str(self.vgpu_type)


@dataclass(frozen=True, kw_only=True)
class MediatedCard:
    """A function on which Nova creates mediated devices: a card, or one of its virtual functions.

    :ivar model: the name of the model in the spec.
    :ivar count: the largest number of devices on the function; None for as many as the driver creates.
    """

    function: Function
    model: str
    type: VgpuType
    count: int | None
    resource_class: str


def shared_functions(spec: Spec, host: Host) -> tuple[Shared, ...]:
    """The physical functions of a host whose virtual functions its spec shares, of any class, by address."""
    return tuple(entry for entry in kept_cards(spec, host) if entry.is_created)


def kept_cards(spec: Spec, host: Host) -> tuple[Shared, ...]:
    """The same, and the cards whose driver creates vGPUs without virtual functions, or none at all."""
    kept = []
    for function, name, model, beside in shared_cards(spec, host):
        vfs, vgpu = model.vfs, model.vgpu
        kind = None if vgpu is None else type_named(host, function, vgpu.type)
        number = int(kind.number) if isinstance(kind, VgpuType) and kind.number.isdecimal() else None
        limit = (vgpu and vgpu.count) or (vfs and vfs.count) or None
        fault = kind if isinstance(kind, str) else None
        if function.vgpu_framework == "mdev" and name != beside[0]:
            fault = _ONE_TYPE.format(model=beside[0])
        kept.append(
            Shared(
                function=function,
                model=name,
                count=limit or function.sriov_totalvfs or 0,
                product=model.ids[1],
                vgpu_type=vfs.vgpu_type if vfs is not None and vgpu is None else number,
                vgpu=vgpu,
                limit=limit,
                fault=fault,
                first=_first(spec, name, beside),
                is_mixed=len({memory(v.type) or v.type for n in beside if (v := spec.models[n].vgpu) and not v.mig})
                > 1,
            )
        )
    return tuple(kept)


def mediated_cards(spec: Spec, host: Host) -> tuple[MediatedCard, ...]:
    """The functions on which Nova creates mediated devices, by address; those without the type are left out."""
    mediated = []
    for card, name, model, beside in shared_cards(spec, host):
        vgpu, is_card, first = model.vgpu, card.vgpu_framework == "mdev", _first(spec, name, beside)
        if vgpu is None or framework(host, card) != "mdev" or (vgpu.mig and card.mig and card.mig.current is False):
            continue
        if is_card and name != beside[0]:
            continue
        parts = (card,) if is_card else host.virtual.get(card.address, ())[first:][: vgpu.count]
        count = vgpu.count if is_card else 1
        of_card = [
            MediatedCard(function=part, model=name, type=kind, count=count, resource_class=vgpu.resource_class)
            for part in parts
            if isinstance(kind := type_named(host, part, vgpu.type), VgpuType)
        ]
        # More virtual functions than the card has room for may offer a device: first those that have one.
        of_card.sort(key=lambda its: its.type.number not in [device.type for device in its.function.mediated_devices])
        mediated += of_card[: of_card[0].type.of_card if of_card else 0]
    return tuple(sorted(mediated, key=lambda its: its.function.bdf))


def _first(spec: Spec, name: str, beside: tuple[str, ...]) -> int:
    before = (spec.models[other].vgpu for other in beside[: beside.index(name)])
    return sum(vgpu.count or 0 for vgpu in before if vgpu is not None)


def shared_cards(spec: Spec, host: Host) -> Iterator[tuple[Function, str, Model, tuple[str, ...]]]:
    """The physical functions of a host whose models share them, by address.

    Each has the name of its model, the model, and all models of the card: the virtual functions have their types in
    this order.
    """
    own = models_for(spec, host.hostname)
    models = {name: model for name, model in own.items() if model.is_shared}
    among = candidates(spec.models, own) if models else {}
    named = ((function, models_of(among, function)) for function in host.pci if models)
    for function, names in sorted(named, key=lambda pair: pair[0].bdf):
        of_card = tuple(name for name in names if name in models and names[0] in models)
        for name in of_card:
            yield function, name, models[name], of_card


def assigned_gpus(spec: Spec, host: Host) -> tuple[Assigned, ...]:
    """The GPUs of a host that are assigned to passthrough, and virtual functions of GPUs, by address."""
    models = models_for(spec, host.hostname)
    kept = {function.address for function, *_ in shared_cards(spec, host)}
    cards = [gpu for gpu in (gpus(host) if models else ()) if gpu.main.address not in kept]
    parts = (Gpu(main=part) for card in cards for part in card.virtual if not lacks_type(part))
    among = candidates(spec.models, models)
    gpu_models = [(gpu, model_of(among, gpu.main)) for gpu in (*cards, *parts)]
    gpu_models += [
        (Gpu(main=part), entry.model)
        for entry in shared_functions(spec, host)
        for part in entry.parts(host)
        if (part.vgpu_type and entry.has_type(part)) or (entry.vgpu is None and part.driver != NVIDIA)
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

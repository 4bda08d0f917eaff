"""The vGPUs of a spec: mediated devices, which Nova creates and flavors request by resource class, or PCI devices."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.vgpu_model import VgpuType
from gpustack.hosts.facts.vgpus import framework, owners, short_name, type_named
from gpustack.spec.assignment import MediatedCard, mediated_cards, shared_cards, shared_functions
from gpustack.spec.model import Spec
from gpustack.spec.models import Model, memory

_MIB, _NVIDIA = 1024, "10de"
_SHOWN, _UNUSED = 8, "no running instance, perhaps a stopped one"


def has_vgpus(spec: Spec) -> bool:
    """Whether a model has vGPUs."""
    return any(model.vgpu for model in spec.models.values())


def offered_vgpus(spec: Spec, host: Host) -> tuple[MediatedCard, ...]:
    """The functions of a host on which Nova creates mediated devices, without those that are out of service."""
    if not has_vgpus(spec):
        return ()
    out = {name for entry in spec.out_of_service_on(host.hostname) for name in (entry.address, entry.serial) if name}
    return tuple(card for card in mediated_cards(spec, host) if out.isdisjoint(names_of(host, card)))


def names_of(host: Host, card: MediatedCard) -> tuple[str, ...]:
    """The addresses of a function and of its card, and the serial number of the card, in lower case."""
    parent = host.functions.get(card.function.physical_function or "", card.function)
    return tuple(name for name in (card.function.address, parent.address, (parent.serial or "").lower()) if name)


def devices(card: MediatedCard) -> int:
    """The number of devices of its type that a card can have: those that exist, and those that its driver can add."""
    if card.type.available is None:
        return card.count or 0
    return card.type.available + sum(device.type == card.type.number for device in card.function.mediated_devices)


def types_in_use(spec: Spec, host: Host, type_of: Callable[[str], str | None]) -> Iterator[Finding]:
    """Mediated devices whose card would have another type, or none, by card and type.

    Nova can't create them again after a reboot (``_recreate_assigned_mediated_devices``). If the spec has no vGPUs, the
    types may be in the operator's own configuration.

    :param type_of: the type of a function with this address, in the spec or in the configuration of Nova.
    """
    stopped = {device: f"instance {instance}, not running" for device, instance in owners(host).items()}
    lost = by_key(
        ((function.physical_function or function.address, device.type, type_of(function.address)), device)
        for function in host.pci
        for device in function.mediated_devices
    )
    for (address, type_, wanted), of_type in lost.items():
        users = {device.uuid: device.user or stopped.get(device.uuid) for device in of_type}
        used = {uuid: user for uuid, user in users.items() if user}
        if type_ in (None, wanted) or not (used or wanted):
            continue
        yield finding(
            Code.MEDIATED_TYPE_IN_USE,
            place=host.at(address),
            severity=None if used and has_vgpus(spec) else Severity.WARNING,
            type=type_,
            users=listed([f"{uuid}: {user or _UNUSED}" for uuid, user in (used or users).items()], _SHOWN),
            wanted=wanted or "no type",
        )


def several_aliases(spec: Spec, host: Host) -> Iterator[tuple[str, Finding]]:
    """Cards, by address, whose virtual functions have types of several aliases: Nova can't distinguish them."""
    shared = shared_cards(spec, host) if has_vgpus(spec) else ()
    models_of = {card.address: beside for card, _, _, beside in shared if framework(host, card) == "vfio"}
    for address, models in models_of.items():
        aliases = dict.fromkeys(map(spec.alias_of, models))
        if len(aliases) > 1:
            place, texts = host.at(address), (" and ".join(models), ", ".join(aliases))
            yield address, finding(Code.VGPUS_OF_SEVERAL_ALIASES, place=place, models=texts[0], aliases=texts[1])


@dataclass(frozen=True, kw_only=True)
class Frameworks:
    """The models whose vGPUs are mediated devices on some host, and those whose vGPUs are virtual functions.

    :ivar single: the models of mediated devices on virtual functions: each provider has one device.
    """

    mediated: frozenset[str] = frozenset()
    virtual: frozenset[str] = frozenset()
    single: frozenset[str] = frozenset()


UNKNOWN = Frameworks()
"""Without facts of hosts."""


def frameworks(spec: Spec, hosts: Sequence[Host]) -> Frameworks:
    """How the hosts of a spec create the vGPUs of its models."""
    hosts = hosts if has_vgpus(spec) else ()
    cards = [card for host in hosts for card in mediated_cards(spec, host)]
    shared = [(host, entry) for host in hosts for entry in shared_functions(spec, host) if entry.vgpu is not None]
    return Frameworks(
        mediated=frozenset(card.model for card in cards),
        virtual=frozenset(entry.model for host, entry in shared if framework(host, entry.function) == "vfio"),
        single=frozenset(card.model for card in cards if card.function.physical_function is not None),
    )


def needs_licensed_driver(model: Model) -> bool:
    """Whether instances get vGPUs of NVIDIA, which only the guest driver of the host's vGPU release serves."""
    is_typed = model.vgpu or model.match.virtual or (model.vfs and model.vfs.vgpu_type)
    return model.match.vendor == _NVIDIA and bool(is_typed)


def drivers_of(hosts: Iterable[Host]) -> tuple[str, ...]:
    """The releases of NVIDIA's driver on hosts."""
    return tuple(sorted({host.kernel.nvidia_driver for host in hosts if host.kernel.nvidia_driver}))


def with_memory(spec: Spec, hosts: Sequence[Host]) -> Spec:
    """The spec with the memory of vGPUs, for flavors by memory: as the driver reports it, else as their type has it."""
    hosts = hosts if has_vgpus(spec) else ()
    cards: list[tuple[str, VgpuType | str]] = [(c.model, c.type) for host in hosts for c in mediated_cards(spec, host)]
    shared = ((host, entry) for host in hosts for entry in shared_functions(spec, host))
    cards += [(e.model, type_named(host, e.function, e.vgpu.type)) for host, e in shared if e.vgpu]
    kinds = ((model, kind) for model, kind in cards if isinstance(kind, VgpuType))
    gibs = ((model, (kind.memory_mib or 0) // _MIB or memory(short_name(kind))) for model, kind in kinds)
    sizes = by_key((model, gib) for model, gib in gibs if gib)
    known = {model: min(of_model) for model, of_model in sizes.items() if spec.models[model].memory is None}
    sized = {n: spec.models[n].model_copy(update={"memory": known[n]}) for n in known}
    return spec.changed(models={**spec.models, **sized}) if sized else spec

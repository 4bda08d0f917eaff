"""Which functions of a host go to guests, on which driver: the spec's GPUs with their closures, and NVSwitches."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.facts import variants
from gpustack.facts.gpus import Gpu, gpus
from gpustack.facts.model import Function, Host
from gpustack.facts.needs import needs, peers
from gpustack.facts.readiness import nvswitches, reasons
from gpustack.findings import Finding, Severity, errors, finding
from gpustack.pci import catalogue, classes
from gpustack.spec.hosts import models_for, nearby, options_for
from gpustack.spec.match import given_as
from gpustack.spec.model import Model, NvSwitch, Spec

# What preparing the host cures, or what a plan says in words of its own.
_NOT_REPEATED = frozenset({"GPU010", "GPU011"})
_PEERS = "GPU014"
_UNKNOWN = "GPU024"
_NOTE = "GPU022"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A device that goes to guests, with everything that must go along.

    :ivar gpu: its functions; for an NVSwitch the switch is in the place of the GPU.
    :ivar model: the spec's name for it; None for an NVSwitch.
    :ivar driver: what shall hold every function, ``vfio-pci`` or ``pci-stub``.
    :ivar variants: the VFIO variant drivers that shall hold functions in place of vfio-pci, by address.
    :ivar refused: whether an error finding stands against it.
    """

    gpu: Gpu
    model: str | None
    driver: str
    refused: bool
    variants: Mapping[str, str] = field(default_factory=dict)

    def driver_of(self, function: Function) -> str:
        """What shall hold a function."""
        return self.variants.get(function.address, self.driver)

    @property
    def address(self) -> str:
        """The address of the GPU or switch itself."""
        return self.gpu.main.address


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Everything of a host that goes to guests."""

    gpus: tuple[Target, ...]
    switches: tuple[Target, ...]
    findings: tuple[Finding, ...]

    @property
    def all(self) -> tuple[Target, ...]:
        """GPUs and NVSwitches."""
        return (*self.gpus, *self.switches)

    @property
    def functions(self) -> dict[str, tuple[Function, str]]:
        """Every function that goes to guests, by address, with its driver."""
        return {f.address: (f, target.driver_of(f)) for target in self.all for f in target.gpu.functions}


def choose(spec: Spec, host: Host) -> Targets:
    """Choose what goes to guests, and say what stands against it."""
    models = models_for(spec, host.hostname)
    if not models:
        return Targets(gpus=(), switches=(), findings=(_not_in_spec(spec, host),))
    mode = options_for(spec, host.hostname).nvswitch
    chosen = {
        gpu.main.address: (gpu, name, models[name].driver)
        for gpu in gpus(host)
        if (name := given_as(spec, host.hostname, gpu.main)) is not None
    }
    switches = (
        tuple(_as_gpu(host, switch) for switch in sorted(nvswitches(host), key=lambda f: f.bdf))
        if _switches_go(mode)
        else ()
    )
    driver = next((driver for _, _, driver in chosen.values()), "vfio-pci")
    wanted = [*chosen.values(), *((switch, None, driver) for switch in switches)]
    going = {f.address: driver for gpu, _, driver in wanted for f in gpu.functions}
    targets: list[Target] = []
    found: list[Finding] = [*_missing(host, models, {name for _, name, _ in chosen.values()})]
    found += _fabric(host, mode, chosen)
    for gpu, name, its_driver in wanted:
        about = _about(host, gpu, its_driver, going, chosen, is_gpu=name is not None)
        refused = bool(errors(about)) or (name is not None and bool(nvswitches(host)) and mode is None)
        choices = {f.address: variants.choice(host, f) for f in gpu.functions if _may_vary(models, name, its_driver)}
        taken = {address: its.module for address, its in choices.items() if its.module is not None}
        targets.append(Target(gpu=gpu, model=name, driver=its_driver, refused=refused, variants=taken))
        found += [*about, *_variants(host, choices)]
    return Targets(
        gpus=tuple(t for t in targets if t.model is not None),
        switches=tuple(t for t in targets if t.model is None),
        findings=tuple(dict.fromkeys(found)),
    )


def _may_vary(models: Mapping[str, Model], name: str | None, driver: str) -> bool:
    """Whether the spec leaves it to the kernels which VFIO driver holds the functions."""
    return driver == "vfio-pci" and (name is None or models[name].variant)


def _variants(host: Host, choices: Mapping[str, variants.Choice]) -> Iterator[Finding]:
    for address, its in choices.items():
        place = f"{host.hostname} {address}"
        if its.module is not None:
            yield finding("GPU147", place=place, driver=its.module)
        elif its.is_mixed:
            said = ", ".join(f"{module} in Linux {release}" for release, module in its.by_kernel)
            yield finding("GPU148", place=place, said=said)


def _is_beside_the_point(found: Finding) -> bool:
    """Whether a finding about a GPU says nothing about preparing its host: what the plan cures, and notes."""
    return found.code in _NOT_REPEATED or (found.code == _NOTE and found.severity is Severity.INFO)


def _switches_go(mode: NvSwitch | None) -> bool:
    return mode in (NvSwitch.FULL, NvSwitch.SHARED)


def _as_gpu(host: Host, switch: Function) -> Gpu:
    group = host.groups.get(switch.iommu_group, ()) if switch.iommu_group is not None else ()
    around = {f.address: f for f in (*host.slots[switch.bdf.slot], *group) if f.address != switch.address}
    ordered = sorted(around.values(), key=lambda f: f.bdf)
    return Gpu(
        main=switch,
        companions=tuple(f for f in ordered if not classes.is_forwarding_bridge(f.pci_class)),
        bridges=tuple(f for f in ordered if classes.is_forwarding_bridge(f.pci_class)),
    )


def _not_in_spec(spec: Spec, host: Host) -> Finding:
    patterns = nearby(spec, host.hostname)
    hint = f" ({', '.join(patterns)} fits it but for the domain)" if patterns else ""
    return finding("GPU100", place=host.hostname, hint=hint)


def _missing(host: Host, models: Iterable[str], there: set[str | None]) -> Iterator[Finding]:
    """Models of the host without a card: a warning as long as there is a card of another model."""
    cards = [f"{gpu.main.address} {gpu.name.removesuffix(f' [{gpu.main.ids}]')} [{gpu.main.ids}]" for gpu in gpus(host)]
    seen = f"it has {', '.join(cards)}" if cards else "it has no GPU at all"
    for name in models:
        if name not in there:
            yield finding("GPU101" if there else "GPU102", place=host.hostname, model=name, seen=seen)


def _fabric(host: Host, mode: NvSwitch | None, chosen: Mapping[str, object]) -> Iterator[Finding]:
    switches = nvswitches(host)
    if not switches or not chosen:
        return
    if mode is None:
        yield finding("GPU118", place=host.hostname, count=len(switches))
    elif _switches_go(mode):
        left = [
            gpu.main.address
            for gpu in gpus(host)
            if gpu.main.address not in chosen and _is_on_fabric(gpu.main, chosen, host)
        ]
        if left:
            yield finding("GPU119", place=host.hostname, mode=mode.value, left=", ".join(left))


def _is_on_fabric(main: Function, chosen: Iterable[str], host: Host) -> bool:
    """Whether a GPU is one of those that the switches join: of the same product as those that go to guests."""
    return main.ids in {host.functions[address].ids for address in chosen}


def _about(
    host: Host, gpu: Gpu, driver: str, going: Mapping[str, str], chosen: Container[str], *, is_gpu: bool
) -> list[Finding]:
    place = f"{host.hostname} {gpu.main.address}"
    group = gpu.main.iommu_group
    found: list[Finding] = []
    if is_gpu:
        # Findings of the host as a whole have only its name as their place.
        found += [f for f in reasons(host, gpu) if f.place != host.hostname and not _is_beside_the_point(f)]
    elif needed := needs(host, gpu):
        found.append(finding("GPU013", place=place, group=group, needs="; ".join(map(str, needed))))
    # What a plan rests on must be known.
    found = [dataclasses.replace(f, severity=Severity.ERROR) if f.code == _UNKNOWN else f for f in found]
    staying = [f for f in peers(host, gpu) if f.address not in chosen]
    if staying:
        found = [f for f in found if f.code != _PEERS]
        names = ", ".join(f"{f.address} ({catalogue.describe(f.vendor, f.product, f.pci_class)})" for f in staying)
        found.append(finding("GPU111", place=place, group=group, peers=names))
    other = sorted({f"{f.address} ({going[f.address]})" for f in gpu.functions if going[f.address] != driver})
    if other:
        found.append(finding("GPU112", place=place, driver=driver, others=", ".join(other)))
    if group is None and not host.groups:
        found.append(finding("GPU117", place=place))
    return found

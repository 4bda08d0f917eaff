"""The GPUs and NVSwitches of a host that its spec passes through, and the findings that block them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, Severity, errors, finding
from gpustack.hosts.facts import variants
from gpustack.hosts.facts.gpus import gpus, nvswitches
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.readiness.assessment import reasons
from gpustack.hosts.readiness.group_members import in_the_way, peers
from gpustack.hosts.readiness.host import count, host_reasons
from gpustack.pci import catalogue
from gpustack.prepare.host.decide import network_cards, virtual_functions
from gpustack.spec.assignment import Assigned, Shared, assigned_gpus, assigned_switches, shared_functions
from gpustack.spec.hosts import models_for, nearby, options_for
from gpustack.spec.model import NvSwitch, Spec
from gpustack.spec.network_functions import network_cards as cards_of_networks

# Findings that preparing the host fixes, or that a plan reports with its own codes.
_NOT_REPEATED = frozenset({Code.BOUND_TO_HOST_DRIVER, Code.BOUND_TO_NO_DRIVER, Code.MEDIATED_TYPES})
_PEERS = Code.GROUP_SHARED_WITH_GPUS
# A plan must not guess, so unknown facts are errors. Virtual functions may be offered to instances even if none uses
# them now: they disappear when the host boots with the card on vfio-pci.
_GRAVE = frozenset({Code.READINESS_UNKNOWN, Code.VIRTUAL_FUNCTIONS_ENABLED})
_NOTE = Code.CARD_NOTE


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The GPUs and NVSwitches that are passed through.

    :ivar shared: the physical functions whose virtual functions are passed through: GPUs, then network cards.
    :ivar virtual: the virtual functions that are passed through; nothing binds them at boot.
    :ivar refused: the addresses of the GPUs and switches that an error blocks.
    """

    gpus: tuple[Assigned, ...]
    switches: tuple[Assigned, ...]
    shared: tuple[Shared, ...] = ()
    virtual: tuple[Assigned, ...] = ()
    refused: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    @property
    def all(self) -> tuple[Assigned, ...]:
        """GPUs and NVSwitches."""
        return (*self.gpus, *self.switches)

    @property
    def exist(self) -> bool:
        """Whether anything is passed through, so that the host needs its IOMMU."""
        return bool(self.gpus or self.switches or self.shared or self.virtual)

    @property
    def functions(self) -> dict[str, tuple[Function, str]]:
        """All functions that are passed through, by address, with their drivers."""
        return {f.address: (f, target.driver_of(f)) for target in self.all for f in target.gpu.functions}


def choose(spec: Spec, host: Host) -> Targets:
    """Select the GPUs and NVSwitches that are passed through, and report errors that block them."""
    models = models_for(spec, host.hostname)
    if not models:
        return Targets(gpus=(), switches=(), findings=(_not_in_spec(spec, host),))
    mode = options_for(spec, host.hostname).nvswitch
    assigned = assigned_gpus(spec, host)
    cards = tuple(target for target in assigned if not target.is_virtual)
    shared, networks = shared_functions(spec, host), cards_of_networks(spec, host)
    targets = Targets(
        gpus=cards,
        switches=assigned_switches(spec, host),
        shared=(*shared, *networks.shared),
        virtual=tuple(target for target in assigned if target.is_virtual),
    )
    findings: list[Finding] = [
        *_missing(host, models, {*(target.model for target in assigned), *(entry.model for entry in shared)}),
        *_virtual(host, targets),
        *virtual_functions.findings(host, targets.shared),
        *network_cards.findings(host, networks),
        *network_cards.of_models(host, shared, networks),
    ]
    findings += _fabric(host, mode, {target.address for target in targets.gpus})
    refused: set[str] = set()
    of_host = host_reasons(host)
    for target in targets.all:
        about = _about(host, target, targets, of_host)
        if errors(about) or (not target.is_switch and nvswitches(host) and mode is None):
            refused.add(target.address)
        findings += [*about, *_variants(host, target.choices)]
    return replace(targets, refused=frozenset(refused), findings=tuple(dict.fromkeys(findings)))


def _virtual(host: Host, targets: Targets) -> Iterator[Finding]:
    """Note the virtual functions of each model that others create."""
    created = {shared.address for shared in targets.shared}
    counts = Counter(target.model for target in targets.virtual if target.gpu.main.physical_function not in created)
    for model, number in counts.items():
        functions = count(number, "virtual function")
        yield finding(Code.VIRTUAL_FUNCTIONS_NOT_PREPARED, place=host.hostname, model=model, functions=functions)


def _variants(host: Host, choices: Mapping[str, variants.Choice]) -> Iterator[Finding]:
    for address, choice in choices.items():
        place = f"{host.hostname} {address}"
        if choice.module is not None:
            yield finding(Code.VARIANT_DRIVER, place=place, driver=choice.module)
        elif choice.is_mixed:
            kernels = ", ".join(f"{module} in Linux {release}" for release, module in choice.by_kernel)
            yield finding(Code.VARIANT_DRIVERS_DIFFER, place=place, said=kernels)


def _is_beside_the_point(gpu_finding: Finding) -> bool:
    """Whether a finding about a GPU is irrelevant for preparing its host: fixed by the plan, or an INFO note."""
    return gpu_finding.code in _NOT_REPEATED or (gpu_finding.code == _NOTE and gpu_finding.severity is Severity.INFO)


def _not_in_spec(spec: Spec, host: Host) -> Finding:
    patterns = nearby(spec, host.hostname)
    hint = f" ({', '.join(patterns)} would match with another domain or case)" if patterns else ""
    return finding(Code.HOST_NOT_IN_SPEC, place=host.hostname, hint=hint)


def _missing(host: Host, models: Iterable[str], present: set[str | None]) -> Iterator[Finding]:
    """Findings about models of the host without a card; less severe if another model has a card."""
    cards = [f"{gpu.main.address} {gpu.name.removesuffix(f' [{gpu.main.ids}]')} [{gpu.main.ids}]" for gpu in gpus(host)]
    cards_text = f"it has {', '.join(cards)}" if cards else "it has no GPU at all"
    for name in models:
        if name not in present:
            yield finding(
                Code.MODEL_WITHOUT_CARD if present else Code.NO_MODEL_WITH_CARD,
                place=host.hostname,
                model=name,
                seen=cards_text,
            )


def _fabric(host: Host, mode: NvSwitch | None, chosen: Collection[str]) -> Iterator[Finding]:
    switches = nvswitches(host)
    if not switches or not chosen:
        return
    if mode is None:
        yield finding(Code.NVSWITCH_MODE_MISSING, place=host.hostname, count=len(switches))
    elif mode is not NvSwitch.ISOLATED:
        unassigned = [
            gpu.main.address
            for gpu in gpus(host)
            if gpu.main.address not in chosen and _is_on_fabric(gpu.main, chosen, host)
        ]
        if unassigned:
            yield finding(Code.NVSWITCH_GPUS_SPLIT, place=host.hostname, mode=mode.value, left=", ".join(unassigned))


def _is_on_fabric(main: Function, chosen: Iterable[str], host: Host) -> bool:
    """Whether the NVSwitches connect a GPU: it has the ids of a GPU that is passed through."""
    return main.ids in {host.functions[address].ids for address in chosen}


def _about(host: Host, target: Assigned, targets: Targets, of_host: Sequence[Finding]) -> list[Finding]:
    """The findings about one GPU or switch that concern the preparation of its host."""
    gpu, group = target.gpu, target.gpu.main.iommu_group
    place = f"{host.hostname} {target.address}"
    going = targets.functions
    # The place of a finding about the host is only its name.
    about = [f for f in reasons(host, gpu, of_host=of_host) if f.place != host.hostname and not _is_beside_the_point(f)]
    if gpu.main.address in virtual_functions.made_at_boot(host):  # the next boot does not create them
        about = [f for f in about if f.code != Code.VIRTUAL_FUNCTIONS_ENABLED]
    about = [replace(f, severity=Severity.ERROR) if f.code in _GRAVE else f for f in about]
    findings = errors(about) if target.is_switch else about
    staying = [f for f in dict.fromkeys((*peers(gpu), *in_the_way(host, gpu))) if f.address not in going]
    if staying:
        names = ", ".join(f"{f.address} ({catalogue.describe(f.vendor, f.product, f.pci_class)})" for f in staying)
        findings = [f for f in findings if f.code != _PEERS]
        findings.append(finding(Code.GROUP_SHARED_WITH_HOST_GPU, place=place, group=group, peers=names))
    around = {f.address for f in gpu.neighbours}
    different = [t for t in targets.all if t.driver != target.driver]
    others = sorted(f"{f.address} ({t.driver})" for t in different for f in t.gpu.functions if f.address in around)
    if others:
        findings.append(finding(Code.GROUP_DRIVERS_DIFFER, place=place, driver=target.driver, others=", ".join(others)))
    if group is None and not host.groups:
        findings.append(finding(Code.GROUP_NOT_KNOWN_YET, place=place))
    return findings

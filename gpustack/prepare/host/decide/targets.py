"""The GPUs and NVSwitches of a host that its spec passes through, and the findings that block them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpustack.base.findings import Code, Finding, Severity, errors, finding
from gpustack.base.text import counted
from gpustack.hosts.facts import variants
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.model import Function, Host
from gpustack.prepare.host.decide import virtual_functions
from gpustack.spec.assignment import Assigned, Shared, kept_cards
from gpustack.spec.model import Spec, models_for, not_in_spec
from gpustack.spec.network_functions import network_cards as cards_of_networks
from gpustack.spec.verdict import Verdict, verdicts
from gpustack.spec.vgpu_use import several_aliases

# Findings that the plan fixes, or reports with its own codes.
_NOT_REPEATED = frozenset(
    {
        *(Code.IOMMU_INACTIVE, Code.NO_INTERRUPT_REMAPPING, Code.UNSAFE_INTERRUPTS_IN_FORCE, Code.READ_IN_CONTAINER),
        *(Code.NVSWITCH_FABRIC, Code.BOUND_TO_HOST_DRIVER, Code.BOUND_TO_NO_DRIVER, Code.GPU_NOT_YET_BOUND),
        Code.MEDIATED_TYPES,
    }
)
_ONLY_IF_GRAVE = frozenset({Code.CARD_NOTE, Code.VIRTUAL_FUNCTIONS_ENABLED})


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The GPUs and NVSwitches that are passed through.

    :ivar left: the functions of the GPUs that are out of service and can't be passed through.
    :ivar shared: the cards that the host keeps, and whose virtual functions or vGPUs instances get: GPUs, then network
        cards.
    :ivar virtual: the virtual functions that are passed through; nothing binds them at boot.
    :ivar refused: the addresses of the GPUs and switches that an error blocks.
    """

    gpus: tuple[Assigned, ...]
    switches: tuple[Assigned, ...]
    shared: tuple[Shared, ...] = ()
    virtual: tuple[Assigned, ...] = ()
    left: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    @property
    def all(self) -> tuple[Assigned, ...]:
        """GPUs and NVSwitches."""
        return (*self.gpus, *self.switches)

    @property
    def exist(self) -> bool:
        """Whether anything is passed through, so that the host needs its IOMMU."""
        created = any(entry.is_created for entry in self.shared)
        return bool(self.gpus or self.switches or created or self.virtual)

    @property
    def functions(self) -> dict[str, tuple[Function, str]]:
        """All functions that are passed through, by address, with their drivers."""
        return {f.address: (f, target.driver_of(f)) for target in self.all for f in target.gpu.functions}


def choose(spec: Spec, host: Host) -> Targets:
    """Select the GPUs and NVSwitches that are passed through, and report errors that block them."""
    models = models_for(spec, host.hostname)
    judged = verdicts(spec, host)
    of_host = [f for f in judged.findings if f.code not in _NOT_REPEATED]
    if not models:
        return Targets(gpus=(), switches=(), findings=(*of_host, not_in_spec(spec, host.hostname)))
    assigned = judged.assigned
    left = [verdict for verdict in judged.all if verdict.is_left_out]
    absent = {verdict.address for verdict in left}
    going = [target for target in assigned if target.address not in absent]
    shared, networks = kept_cards(spec, host), cards_of_networks(spec, host)
    targets = Targets(
        gpus=tuple(target for target in going if not target.is_virtual),
        switches=tuple(verdict.target for verdict in judged.switches if verdict.target is not None),
        shared=(*shared, *networks.shared),
        virtual=tuple(target for target in going if target.is_virtual),
        left=frozenset(address for verdict in left for address in verdict.gpu.addresses),
    )
    with_types = {target.gpu.main.physical_function for target in assigned}  # the verdicts have their faults
    findings: list[Finding] = [
        *of_host,
        *(fault for card, fault in several_aliases(spec, host) if card not in with_types),
        *_missing(host, models, {*(target.model for target in assigned), *(entry.model for entry in shared)}),
        *_virtual(host, targets),
        *virtual_functions.findings(host, targets.shared),
        *virtual_functions.network_findings(host, networks),
        *virtual_functions.of_models(host, shared, networks),
        *(_left_out(host, verdict) for verdict in left),
    ]
    chosen = [v for v in (*judged.all, *judged.switches) if v.target is not None and v.address not in absent]
    refused = set()
    for verdict in chosen:
        about = list(_about(host, verdict))
        findings += about
        if errors(about) or Code.NVSWITCH_MODE_MISSING in verdict.codes:
            refused.add(verdict.address)
    for target in targets.all:
        findings += _variants(host, target.choices)
    return replace(targets, refused=frozenset(refused), findings=tuple(dict.fromkeys(findings)))


def _about(host: Host, verdict: Verdict) -> Iterator[Finding]:
    """The findings about one device that concern the preparation of its host."""
    for entry in verdict.findings:
        is_minor = entry.code in _ONLY_IF_GRAVE and entry.severity is Severity.INFO
        is_known = entry.place == host.hostname or entry.code in _NOT_REPEATED  # those of the host have only its name
        if not (is_minor or is_known) and (not verdict.is_switch or entry.severity is Severity.ERROR):
            yield entry
    if verdict.gpu.main.iommu_group is None and not host.groups and not verdict.gpu.main.physical_function:
        yield finding(Code.GROUP_NOT_KNOWN_YET, place=host.at(verdict.address))


def _left_out(host: Host, verdict: Verdict) -> Finding:
    reason = verdict.out_of_service.why if verdict.out_of_service is not None else ""
    return finding(Code.PREPARED_WITHOUT_GPU, place=host.at(verdict.address), reason=reason, codes=verdict.codes)


def _virtual(host: Host, targets: Targets) -> Iterator[Finding]:
    """Note the virtual functions of each model that others create."""
    created = {shared.address for shared in targets.shared}
    counts = Counter(target.model for target in targets.virtual if target.gpu.main.physical_function not in created)
    for model, number in counts.items():
        functions = counted(number, "virtual function")
        yield finding(Code.VIRTUAL_FUNCTIONS_NOT_PREPARED, place=host.hostname, model=model, functions=functions)


def _variants(host: Host, choices: Mapping[str, variants.Choice]) -> Iterator[Finding]:
    for address, choice in choices.items():
        place = host.at(address)
        if choice.module is not None:
            yield finding(Code.VARIANT_DRIVER, place=place, driver=choice.module)
        elif choice.is_mixed:
            kernels = ", ".join(f"{module} in Linux {release}" for release, module in choice.by_kernel)
            yield finding(Code.VARIANT_DRIVERS_DIFFER, place=place, said=kernels)


def _missing(host: Host, models: Iterable[str], present: set[str | None]) -> Iterator[Finding]:
    """Findings about models of the host without a card; less severe if another model has a card."""
    cards = [f"{gpu.main.address} {gpu.name.removesuffix(f' [{gpu.main.ids}]')} [{gpu.main.ids}]" for gpu in gpus(host)]
    cards_text = f"it has {', '.join(cards)}" if cards else "it has no GPU at all"
    if parts := sorted({part.ids for gpu in gpus(host) for part in gpu.virtual if part.ids != gpu.main.ids}):
        cards_text += f"; its virtual functions ({', '.join(parts)}) match only with `function: virtual`"
    for name in models:
        if name not in present:
            code = Code.MODEL_WITHOUT_CARD if present else Code.NO_MODEL_WITH_CARD
            yield finding(code, place=host.hostname, model=name, seen=cards_text)

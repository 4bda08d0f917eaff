"""The verdict on each GPU of a host: what its hardware, the host and the spec allow together. Pure.

Host preparation, Nova's configuration, flavors, quotas, images, capacity and the fleet ask it, so that their answers
agree. A verdict is about the GPU: faults that only prevent the *preparation* of a host (:mod:`gpustack.prepare.host`)
are none of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from gpustack.base.findings import Code, Finding, Severity, errors, finding
from gpustack.hosts.facts.gpus import Gpu, gpus, nvswitches
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.twins import decided
from gpustack.hosts.readiness.assessment import UNKNOWN, Readiness, State, assess, effect, in_the_way, peers
from gpustack.hosts.readiness.host import host_reasons
from gpustack.linux.drivers import is_held, is_passthrough_driver
from gpustack.pci import catalogue
from gpustack.spec.assignment import Assigned, assigned_gpus, assigned_switches
from gpustack.spec.model import NvSwitch, Options, OutOfService, Spec, models_for, options_for
from gpustack.spec.twins import decided_by
from gpustack.spec.vgpu_use import several_aliases

_BINDING = frozenset({Code.BOUND_TO_HOST_DRIVER, Code.BOUND_TO_NO_DRIVER})
_REMAPPING = frozenset({Code.NO_INTERRUPT_REMAPPING, Code.UNSAFE_INTERRUPTS_IN_FORCE})
_OF_PARTS = frozenset(
    {
        *(Code.NO_IOMMU, Code.VIRTUAL_MACHINE_WITHOUT_IOMMU, Code.IOMMU_INACTIVE, Code.IOMMU_UNKNOWN, *_REMAPPING),
        *(Code.NO_IOMMU_GROUP, Code.GROUP_IN_USE, Code.GROUP_WITH_HOST_CONTROLLER, Code.GROUP_WITH_RESERVED_MEMORY),
        *(Code.DEVICE_NOT_RESPONDING, Code.PCI_DOMAIN_TOO_WIDE, Code.READINESS_UNKNOWN, Code.INTERRUPTS_NOT_REMAPPED),
    }
)
"""The findings that concern a virtual function. libvirt takes it from its driver, and its card resets it."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a GPU, an NVSwitch or a virtual function.

    :ivar target: its model and driver in the spec; None if the host keeps it.
    :ivar out_of_service: its entry in the spec's ``out_of_service``: it stays bound, but is not offered.
    """

    gpu: Gpu
    readiness: Readiness
    target: Assigned | None = None
    out_of_service: OutOfService | None = None

    @property
    def address(self) -> str:
        """The address of the device."""
        return self.gpu.main.address

    @property
    def state(self) -> State:
        """Whether the device can be passed through."""
        return self.readiness.state

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, most severe first."""
        return (*self.readiness.reasons, *self.readiness.notes)

    @property
    def is_offered(self) -> bool:
        """Whether Nova offers it: now, or as soon as its host is prepared."""
        in_service = self.target is not None and self.out_of_service is None
        return in_service and self.state in (State.READY, State.PREPARABLE)

    @property
    def holder(self) -> str:
        """The driver that has the device, for messages."""
        return _holder(self.target) if self.target is not None else ""

    @property
    def is_switch(self) -> bool:
        """Whether it is an NVSwitch."""
        return self.target is not None and self.target.is_switch

    @property
    def is_left_out(self) -> bool:
        """Whether the host is prepared without it: it is out of service, and can't be passed through."""
        return self.out_of_service is not None and self.state in (State.BLOCKED, State.UNKNOWN)

    @property
    def codes(self) -> str:
        """The codes that prevent passthrough, for messages."""
        return ", ".join(
            dict.fromkeys(reason.code for reason in self.readiness.reasons if effect(reason) is self.state)
        )


@dataclass(frozen=True, kw_only=True)
class HostVerdicts:
    """The verdicts on the devices of a host.

    :ivar all: the GPUs, and virtual functions that the spec assigns, by address.
    :ivar switches: the assigned NVSwitches.
    :ivar findings: findings about the host that concern all of its GPUs.
    :ivar absent: entries of ``out_of_service`` that match no assigned GPU of the host.
    :ivar unknown: entries by serial number, if the serial number of an assigned GPU is unknown.
    """

    host: Host
    all: tuple[Verdict, ...] = ()
    switches: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    absent: tuple[OutOfService, ...] = ()
    unknown: tuple[OutOfService, ...] = ()

    @property
    def assigned(self) -> tuple[Assigned, ...]:
        """The GPUs and virtual functions that the spec assigns, by address."""
        return tuple(verdict.target for verdict in self.all if verdict.target is not None)

    @property
    def offered(self) -> tuple[Assigned, ...]:
        """Those that Nova offers."""
        return tuple(v.target for v in self.all if v.target is not None and v.is_offered)

    @property
    def complete(self) -> bool:
        """Whether all assigned GPUs are offered, so that their ids are enough to offer them.

        An absent GPU may return to its slot: ids would offer it.
        """
        return len(self.offered) == len(self.assigned) and not (self.absent or self.unknown)

    @property
    def in_service(self) -> Iterator[Verdict]:
        """The verdicts on assigned GPUs that are not out of service."""
        return (v for v in self.all if v.target is not None and v.out_of_service is None)

    @cached_property
    def by_address(self) -> dict[str, Verdict]:
        """The verdict on each device, also by the addresses of its companions."""
        return {address: verdict for verdict in self.all for address in verdict.gpu.addresses}


def verdicts(spec: Spec | None, host: Host) -> HostVerdicts:
    """The verdicts of a host; computed once for the same objects.

    :param spec: None for the part of hardware and host alone.
    """
    known = host.decisions.get(id(spec))
    if known is None or known[0] is not spec or known[1].host is not host:  # a copy of a host has its verdicts
        own = decided(host, _judge, partial(_judge, None)) if spec is None else decided_by(spec, host, _judge, _judge)
        known = host.decisions[id(spec)] = (spec, own)
    judged: HostVerdicts = known[1]
    return judged


def _judge(spec: Spec | None, host: Host) -> HostVerdicts:
    of_host = host_reasons(host)
    kept = {gpu.main.address: Verdict(gpu=gpu, readiness=assess(host, gpu, of_host=of_host)) for gpu in gpus(host)}
    if spec is None or not models_for(spec, host.hostname):
        return HostVerdicts(host=host, all=tuple(kept.values()), findings=tuple(map(_certain, of_host)))
    options = options_for(spec, host.hostname)
    targets, switches = assigned_gpus(spec, host), assigned_switches(spec, host)
    named = [(e, [t for t in targets if _names(e, t)]) for e in spec.out_of_service_on(host.hostname)]
    entries = {target.address: entry for entry, of_entry in reversed(named) for target in of_entry}
    fabric = tuple(_fabric(host, options.nvswitch, {t.address for t in targets if not t.is_virtual}))
    interrupts = tuple(_interrupts(host, options))
    own: dict[str, list[Finding]] = {}
    mixed = dict(several_aliases(spec, host))
    for target in (*targets, *switches):
        known = kept.get(target.address)
        readiness = known.readiness if known is not None else assess(host, target.gpu, of_host=of_host)
        own[target.address] = _own(spec, target, readiness, errors(interrupts), errors(fabric))
        own[target.address] += [fault for card, fault in mixed.items() if card == target.gpu.main.physical_function]
    judged: tuple[Verdict, ...] = ()
    left: set[str] = set()
    while True:  # a GPU that is left out may block others of its IOMMU group
        going = [target for target in (*targets, *switches) if not target.is_virtual and target.address not in left]
        judged = tuple(
            Verdict(
                gpu=target.gpu,
                target=target,
                readiness=_combined(own[target.address], list(_of_group(host, target, going))),
                out_of_service=entries.get(target.address),
            )
            for target in (*targets, *switches)
        )
        if left == (left := {verdict.address for verdict in judged if verdict.is_left_out}):
            break
    by_address = kept | {verdict.address: verdict for verdict in judged[: len(targets)]}
    unmatched = [entry for entry, of_entry in named if not of_entry]
    blind = any(_serial(target) is None for target in targets)
    return HostVerdicts(
        host=host,
        all=tuple(sorted(by_address.values(), key=lambda verdict: verdict.gpu.main.bdf)),
        switches=judged[len(targets) :],
        findings=(*(_certain(f) for f in of_host if f.code not in _REMAPPING), *interrupts, *fabric),
        absent=tuple(entry for entry in unmatched if entry.address or not blind),
        unknown=tuple(entry for entry in unmatched if entry.serial and blind),
    )


def _combined(own: list[Finding], of_group: list[Finding]) -> Readiness:
    """The findings of a device; a GPU of its group that stays with the host is reported once."""
    staying = any(f.code == Code.GROUP_SHARED_WITH_HOST_GPU for f in of_group)
    return Readiness.of((*(f for f in own if not (staying and f.code == Code.GROUP_SHARED_WITH_GPUS)), *of_group))


def _names(entry: OutOfService, target: Assigned) -> bool:
    """Whether an entry names a GPU: by one of its addresses, or by its serial number."""
    if entry.serial:
        return _serial(target) == entry.serial
    return entry.address in {target.gpu.main.physical_function, *target.gpu.addresses}


def _serial(target: Assigned) -> str | None:
    return next((f.serial for f in target.gpu.functions if f.serial), None)


def _certain(of_host: Finding) -> Finding:
    """Raise an unknown fact to an error: nothing may be decided by a guess."""
    grave = of_host.code in UNKNOWN or (
        of_host.code == Code.VIRTUAL_FUNCTIONS_ENABLED and of_host.severity is Severity.WARNING
    )
    return replace(of_host, severity=Severity.ERROR) if grave else of_host


def _own(
    spec: Spec, target: Assigned, readiness: Readiness, interrupts: Iterable[Finding], fabric: Iterable[Finding]
) -> list[Finding]:
    """The findings about a device that do not depend on the choice of others.

    :param interrupts: errors about interrupts, which replace what the facts alone say.
    """
    found = [_certain(f) for f in (*readiness.reasons, *readiness.notes)]
    if interrupts:
        found = [*(f for f in found if f.code not in _REMAPPING), *interrupts]
    if target.is_virtual:
        found = [f for f in found if f.code in _OF_PARTS]
    elif not target.is_switch:
        found += fabric
    by_libvirt = target.is_virtual and spec.models[target.model].managed is not False
    if not (target.is_switch or by_libvirt or is_held(target.gpu.main.driver, target.driver_of(target.gpu.main))):
        place, holder = f"{target.host.hostname} {target.address}", _holder(target)
        found.append(finding(Code.GPU_NOT_YET_BOUND, place=place, addresses=target.address, driver=holder))
    return found


def _holder(target: Assigned) -> str:
    driver, assigned = target.gpu.main.driver, target.driver_of(target.gpu.main)
    return f"{driver} instead of {assigned}" if is_passthrough_driver(driver) else driver or "no driver"


def _of_group(host: Host, target: Assigned, going: Iterable[Assigned]) -> Iterator[Finding]:
    """Other devices in the IOMMU group that stay with the host, or are bound to another driver."""
    gpu, group = target.gpu, target.gpu.main.iommu_group
    place = host.at(target.address)
    drivers = {f.address: t.driver for t in going for f in t.gpu.functions}
    staying = [f for f in dict.fromkeys((*peers(gpu), *in_the_way(host, gpu))) if f.address not in drivers]
    if target.is_virtual:
        return
    if staying:
        names = ", ".join(f"{f.address} ({catalogue.describe(f.vendor, f.product, f.pci_class)})" for f in staying)
        yield finding(Code.GROUP_SHARED_WITH_HOST_GPU, place=place, group=group, peers=names)
    around = {f.address: drivers.get(f.address, target.driver) for f in gpu.neighbours}
    others = sorted(f"{address} ({driver})" for address, driver in around.items() if driver != target.driver)
    if others:
        yield finding(Code.GROUP_DRIVERS_DIFFER, place=place, driver=target.driver, others=", ".join(others))


def _fabric(host: Host, mode: NvSwitch | None, chosen: set[str]) -> Iterator[Finding]:
    """NVSwitches without a mode, and GPUs that a fabric without its host driver would leave unusable."""
    switches = nvswitches(host)
    if not switches or not chosen:
        return
    if mode is None:
        yield finding(Code.NVSWITCH_MODE_MISSING, place=host.hostname, count=len(switches))
    elif mode is not NvSwitch.ISOLATED:
        # The switches connect the GPUs with the ids of one that is passed through.
        ids = {host.functions[address].ids for address in chosen}
        apart = [g.main.address for g in gpus(host) if g.main.address not in chosen and g.main.ids in ids]
        if apart:
            yield finding(Code.NVSWITCH_GPUS_SPLIT, place=host.hostname, mode=mode.value, left=", ".join(apart))


def _interrupts(host: Host, options: Options) -> Iterator[Finding]:
    """Whether the spec permits passthrough without interrupt remapping."""
    remapping = host.iommu.interrupt_remapping
    if options.allow_unsafe_interrupts:
        code = Code.UNSAFE_INTERRUPTS_ALLOWED if remapping is not True else Code.UNSAFE_INTERRUPTS_UNNECESSARY
        yield finding(code, place=host.hostname)
    elif remapping is False:
        # While the IOMMU is off (amd_iommu=off), the state of interrupt remapping is not final.
        yield finding(
            Code.INTERRUPTS_NOT_REMAPPED if host.iommu.units else Code.REMAPPING_NOT_KNOWN_YET, place=host.hostname
        )


def obstacles(judged: HostVerdicts) -> Iterator[Finding]:
    """GPUs that are offered before they are prepared, and GPUs that must not be offered; without :func:`unknown`."""
    unbound: dict[str, list[str]] = {}
    blocked: list[str] = []
    for verdict in judged.in_service:
        for reason in verdict.readiness.reasons:
            if verdict.state is State.BLOCKED and effect(reason) is State.BLOCKED:
                yield replace(reason, severity=Severity.WARNING)  # it prevents nothing but the offer of this GPU
            elif verdict.state is State.PREPARABLE and reason.code == Code.GPU_NOT_YET_BOUND:
                unbound.setdefault(verdict.holder, []).append(verdict.address)
            elif verdict.state is State.PREPARABLE and reason.code not in _BINDING:
                yield reason
        if verdict.state is State.BLOCKED:
            blocked.append(f"{verdict.address} ({verdict.codes})")
    for holder, addresses in unbound.items():
        place = judged.host.hostname
        yield finding(Code.GPU_NOT_YET_BOUND, place=place, addresses=", ".join(addresses), driver=holder)
    if blocked:
        yield finding(Code.BLOCKED_GPUS_NOT_OFFERED, place=judged.host.hostname, gpus=", ".join(blocked))


def unknown(judged: HostVerdicts) -> Iterator[Finding]:
    """Errors about GPUs that may be ready or not: the present configuration of their host must stay."""
    for verdict in judged.in_service:
        if verdict.state is State.UNKNOWN:
            yield from (reason for reason in verdict.readiness.reasons if effect(reason) is State.UNKNOWN)


def doubts(spec: Spec, hosts: Iterable[Host]) -> Iterator[Finding]:
    """All findings about the verdicts of hosts, for commands that change no host: none is an error."""
    for judged in (verdicts(spec, host) for host in hosts):
        yield from obstacles(judged)
        yield from (replace(reason, severity=Severity.WARNING) for reason in unknown(judged))

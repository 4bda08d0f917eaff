"""Whether a GPU is ready for passthrough now, and the reasons if not.

Pure: computed from the facts of one host. ``gpustack/data/findings/device.toml`` documents the codes.

There are four kinds of findings. *Errors* are faults of the machine that host configuration can't fix: the GPU is
blocked. Codes in :data:`PREPARATION` are fixed by preparing the host (IOMMU off, host drivers): the GPU is preparable.
Codes in :data:`UNKNOWN` leave the answer open. All other findings are notes, and do not affect readiness.
:mod:`gpustack.spec.verdict` adds the spec's part; everything but `gpustack scan` asks that module.

vfio can open an IOMMU group only while no member is bound to a host driver. So a member that is not part of the GPU's
card blocks the GPU if the host needs it; a function without a driver is not changed.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import counted, listed
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.facts.gpus import Gpu, assemble, card_of, is_gpu, is_integrated, is_nvswitch
from gpustack.hosts.facts.model import Function, Host, IommuGroup
from gpustack.hosts.facts.vgpu_model import USER_UNKNOWN
from gpustack.hosts.readiness import isolation
from gpustack.hosts.readiness.host import GROUPS, host_reasons, iommu_active, size, unreadable
from gpustack.linux.drivers import BY_ID, is_host_driver, is_passthrough_driver
from gpustack.pci import catalogue, classes


@dataclass(frozen=True, kw_only=True)
class Need:
    """A function that the host needs, and its uses (``interface eth0 (up)``, ``disk sda``)."""

    function: Function
    uses: tuple[str, ...]

    def __str__(self) -> str:
        reasons = (
            classes.word(self.function.pci_class),
            *((f"driver {self.function.driver}",) if self.function.driver else ()),
            *self.uses,
        )
        return f"{self.function.address} ({', '.join(reasons)})"


def needs(host: Host, gpu: Gpu) -> tuple[Need, ...]:
    """The functions of a GPU's card and group that the host needs, sorted by address.

    Functions of GPU cards (this one and others in the group) and NVSwitches are needed if the host uses a device on
    them: a disk, a network interface, or any USB device on a card's USB controller. Each other function is needed if
    it is bound to a host driver. GPUs themselves are never needed.
    """
    spared = {f.address for f in (*gpu.functions, *_along(host, gpu))}
    return tuple(
        Need(function=f, uses=tuple(describe_uses(f)))
        for f in sorted((*gpu.functions, *gpu.neighbours), key=lambda f: f.bdf)
        if is_host_driver(f.driver) and not is_gpu(f) and (f.address not in spared or any(describe_uses(f)))
    )


def peers(gpu: Gpu) -> tuple[Function, ...]:
    """The other GPUs in this GPU's IOMMU group: they can only be passed through to the same instance."""
    return tuple(f for f in gpu.neighbours if is_gpu(f))


def in_the_way(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    """The functions of the group that belong to peers' cards or are NVSwitches, and are bound to a host driver."""
    return tuple(f for f in _along(host, gpu) if is_host_driver(f.driver))


def idle(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    """The members of a GPU's group without a driver, except NVSwitches and functions of GPU cards, virtual ones too."""
    along = {f.address for f in _along(host, gpu)}
    along |= {f.address for peer in peers(gpu) for f in assemble(host, peer).virtual}
    return tuple(f for f in gpu.neighbours if f.driver is None and f.address not in along)


def _along(host: Host, gpu: Gpu) -> tuple[Function, ...]:
    cards = {f.address for peer in peers(gpu) for f in assemble(host, peer).functions}
    return tuple(f for f in gpu.neighbours if f.address in cards or is_nvswitch(f))


def describe_uses(function: Function) -> Iterator[str]:
    """Descriptions of the devices that the running host has on a function."""
    uses = function.uses
    for interface in uses.net:
        yield f"interface {interface.name}" + (f" ({interface.state})" if interface.state else "")
    if uses.block:
        yield f"disk {', '.join(uses.block)}"
    if uses.usb:
        yield f"USB: {', '.join(uses.usb)}"
    if uses.input:
        yield f"input {', '.join(uses.input)}"


PREPARATION = frozenset(
    {
        Code.IOMMU_INACTIVE,
        Code.NO_INTERRUPT_REMAPPING,
        Code.BOUND_TO_HOST_DRIVER,
        Code.BOUND_TO_NO_DRIVER,
        Code.BOOT_FRAMEBUFFER,
        Code.GPU_NOT_YET_BOUND,
    }
)
"""Codes with a severity below ``error`` that also prevent passthrough, until the host is prepared."""
UNKNOWN = frozenset({Code.READINESS_UNKNOWN, Code.IOMMU_UNKNOWN})
"""The same, until the host is completely read."""

_FRAMEBUFFER = re.compile(r"bootfb|(?:efi|vesa|simple|offb?)[-_]?(?:fb|drm|framebuffer)|sysfb", re.IGNORECASE)
_RESET_QUIRKS = frozenset({"amd-reset", "blackwell-reset", "instinct-reset"})
_GRAVE_QUIRKS = frozenset({"coherent-memory", "nvlink5-bridge", "igd", "amd-apu", "shared-hbm"})
_INTEGRATED_QUIRKS = {"8086": "igd", "1002": "amd-apu"}
_ASLEEP = "D3cold"  # no power: all bits of its registers read as ones, and it is not dead
_DEVICES = "/sys/bus/pci/devices"
_HAS = re.compile(r"(\S+) has ([0-9]{1,5}) virtual functions?")
_SKIPPED = re.compile(r"(\S+) is skipped: (.*)")
_WANTS = re.compile(r"(\S+) wants \S+ \S+ ([0-9]{1,5}|-) (\S+) \S+(?: ([0-9]{1,5})(?: mixed)?)?")


class State(enum.StrEnum):
    """Whether a GPU can be passed through."""

    READY = "ready"
    PREPARABLE = "preparable"
    """After the host is prepared."""
    BLOCKED = "blocked"
    """A fault of the machine, or the host's use of it, prevents it."""
    UNKNOWN = "unknown"
    """Some facts could not be read."""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The findings of one GPU, sorted by severity, most severe first.

    :ivar reasons: findings that block passthrough now; empty if the GPU is ready.
    :ivar notes: other findings.
    """

    reasons: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @cached_property
    def state(self) -> State:
        """The answer; a known obstacle counts more than an unreadable fact."""
        states = {effect(reason) for reason in self.reasons}
        order = (State.BLOCKED, State.UNKNOWN, State.PREPARABLE)
        return next((state for state in order if state in states), State.READY)

    @property
    def ready(self) -> bool:
        """Whether the GPU can be passed through now: no finding blocks it."""
        return not self.reasons

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self:
        """Split findings into reasons and notes."""
        ranked = sorted(findings, key=lambda f: (-f.severity.rank, f.code))
        return cls(reasons=tuple(f for f in ranked if effect(f)), notes=tuple(f for f in ranked if not effect(f)))


def effect(reason: Finding) -> State | None:
    """The effect of a finding on its GPU; None for a note."""
    if reason.code in UNKNOWN:
        return State.UNKNOWN
    if reason.code == Code.VIRTUAL_FUNCTIONS_ENABLED:  # info: gpustack's own, which the next boot does not create
        return State.PREPARABLE if reason.severity is Severity.INFO else State.BLOCKED
    if reason.severity is Severity.ERROR:
        return State.BLOCKED
    return State.PREPARABLE if reason.code in PREPARATION else None


def assess(host: Host, gpu: Gpu, *, of_host: Sequence[Finding] | None = None) -> Readiness:
    """The findings about one GPU: codes GPU010 and up, and the findings about its host that block it.

    The place of the latter is the host's name; :func:`host_reasons` returns them too.

    :param of_host: the result of :func:`host_reasons`, to compute it once for all GPUs of a host.
    """
    host_findings = host_reasons(host) if of_host is None else of_host
    return Readiness.of(
        (
            *(f for f in host_findings if effect(f)),
            *_group(host, gpu),
            *_binding(host, gpu),
            *_device(host, gpu),
            *_quirks(host, gpu, switched=any(f.code == Code.NVSWITCH_FABRIC for f in host_findings)),
        )
    )


def place_of(host: Host, gpu: Gpu) -> str:
    """The place of findings about a GPU."""
    return f"{host.hostname} {gpu.main.address}"


def _group(host: Host, gpu: Gpu) -> Iterator[Finding]:
    place, group = place_of(host, gpu), gpu.main.iommu_group
    needed = needs(host, gpu)
    if of_card := [need for need in needed if need.function in gpu.functions]:
        yield finding(Code.CARD_FUNCTION_IN_USE, place=place, needs="; ".join(map(str, of_card)))
    if group is None:
        if iommu_active(host) and not unreadable(host, f"{_DEVICES}/{gpu.main.address}/iommu_group"):
            yield finding(Code.NO_IOMMU_GROUP, place=place)
        return
    if others := [need for need in needed if need not in of_card]:
        yield finding(Code.GROUP_IN_USE, place=place, group=group, needs="; ".join(map(str, others)))
    yield from isolation.of_gpu(host, gpu)
    if shared := peers(gpu):
        yield finding(Code.GROUP_SHARED_WITH_GPUS, place=place, group=group, peers=", ".join(f.address for f in shared))
    yield from _direct(host, gpu)
    yield from _idle(host, gpu)


def _group_of(host: Host, gpu: Gpu) -> IommuGroup:
    """The facts of a GPU's IOMMU group; an empty group if there are none."""
    number = gpu.main.iommu_group
    return next((g for g in host.iommu.groups if g.number == number), IommuGroup(number=-1))


def _direct(host: Host, gpu: Gpu) -> Iterator[Finding]:
    """Reserved regions that must be mapped one to one (RMRR): the kernel refuses to pass such a group through.

    Intel's IOMMU driver has always refused (``device_is_rmrr_locked``), the IOMMU core since Linux 6.6
    (``iommu_device_require_direct``). Displays and USB controllers are exempt: their type is ``direct-relaxable``.
    """
    direct = (region for region in _group_of(host, gpu).reserved if region.type == "direct")
    if ranges := ", ".join(f"{region.start:#x}-{region.end:#x}" for region in direct):
        release = re.match(r"([0-9]+)\.([0-9]+)", host.kernel.release or "")
        is_old = release is not None and (int(release[1]), int(release[2])) < (6, 6)
        severity = Severity.WARNING if is_old and "DMAR" not in host.iommu.acpi_tables else None
        place, group = place_of(host, gpu), gpu.main.iommu_group
        yield finding(Code.GROUP_WITH_RESERVED_MEMORY, place=place, severity=severity, group=group, ranges=ranges)


def _idle(host: Host, gpu: Gpu) -> Iterator[Finding]:
    """Members of the group without a driver: vfio accepts them until a host driver binds one."""
    members = [f for f in idle(host, gpu) if not unreadable(host, f"{_DEVICES}/{f.address}/driver")]
    wanted = [f for f in members if classes.is_controller(f.pci_class) and f.matching]
    others = [f for f in members if f not in wanted]
    for code, functions in ((Code.GROUP_WITH_HOST_CONTROLLER, wanted), (Code.GROUP_WITH_DRIVERLESS_DEVICES, others)):
        if functions:
            is_grave = any(classes.is_controller(f.pci_class) or f.matching for f in functions)
            severity, names = None if is_grave else Severity.INFO, ", ".join(map(_idle_member, functions))
            place, group = place_of(host, gpu), gpu.main.iommu_group
            yield finding(code, place=place, severity=severity, group=group, members=names)


def _idle_member(function: Function) -> str:
    modules = f"; {', '.join(function.matching)} fits it" if function.matching else ""
    description = catalogue.describe(function.vendor, function.product, function.pci_class)
    return f"{function.address} ({description}{modules})"


def _binding(host: Host, gpu: Gpu) -> Iterator[Finding]:
    place = place_of(host, gpu)
    unknown = [
        f"{name} of {f.address}"
        for f in (*gpu.functions, *gpu.neighbours)
        for name in ("driver", "iommu_group")
        if unreadable(host, f"{_DEVICES}/{f.address}/{name}")
    ]
    if not iommu_active(host) and unreadable(host, GROUPS):
        unknown.append(GROUPS)
    group = _group_of(host, gpu)
    unknown += [f"{name}, a member of its IOMMU group" for name in group.devices if name not in host.functions]
    if unknown:
        yield finding(Code.READINESS_UNKNOWN, place=place, names=", ".join(unknown))
    needed = [need.function for need in needs(host, gpu)]  # CARD_FUNCTION_IN_USE and GROUP_IN_USE report these
    holding = (*(f for f in gpu.functions if is_host_driver(f.driver)), *in_the_way(host, gpu))
    if held := [f for f in holding if f not in needed]:
        drivers = [f"{f.driver}" if f is gpu.main else f"{f.driver} of {_called(gpu, f)}" for f in held]
        yield finding(Code.BOUND_TO_HOST_DRIVER, place=place, drivers=", ".join(drivers))
    free = [f for f in gpu.functions if f.driver is None and not unreadable(host, f"{_DEVICES}/{f.address}/driver")]
    if free:
        yield finding(Code.BOUND_TO_NO_DRIVER, place=place, functions=", ".join(_called(gpu, f) for f in free))
    variants = sorted({f.driver for f in gpu.functions if f.driver and is_passthrough_driver(f.driver)} - {*BY_ID})
    if variants:
        yield finding(Code.BOUND_TO_VARIANT_DRIVER, place=place, driver=", ".join(variants))


def _called(gpu: Gpu, function: Function) -> str:
    """Describe a function relative to its GPU; without an address if both are in the same slot."""
    if function is gpu.main:
        return "the GPU"
    if function.bdf.slot == gpu.main.bdf.slot:
        return f"its {classes.word(function.pci_class)}"
    return f"{function.address} ({classes.word(function.pci_class)})"


def _device(host: Host, gpu: Gpu) -> Iterator[Finding]:
    place, main = place_of(host, gpu), gpu.main
    silent = (f for f in gpu.functions if f.responds is False and f.power_state != _ASLEEP)
    if names := ", ".join(_called(gpu, f) for f in silent):
        yield finding(Code.DEVICE_NOT_RESPONDING, place=place, functions=names)
    if main.boot_vga:
        yield finding(Code.BOOT_DISPLAY, place=place)
    framebuffers = {claim for f in gpu.functions for claim in f.claims if _FRAMEBUFFER.search(claim)}
    if claims := ", ".join(sorted(framebuffers)):
        yield finding(Code.BOOT_FRAMEBUFFER, place=place, claims=claims, advice=_framebuffer_advice(host, main))
    own = Severity.INFO if main.address in made_at_boot(host) else None
    if main.sriov_numvfs:
        enabled = f"{counted(main.sriov_numvfs, 'virtual function')} of it {'is' if main.sriov_numvfs == 1 else 'are'}"
        yield finding(Code.VIRTUAL_FUNCTIONS_ENABLED, place=place, enabled=enabled, severity=own)
    if bound := ", ".join(of_instances(gpu.virtual)):
        yield finding(Code.VIRTUAL_FUNCTIONS_OF_INSTANCES, place=place, functions=bound)
    mediated = [f for f in (*gpu.functions, *gpu.virtual) if f.vgpu_framework == "mdev"]
    kinds = (f"{kind.number} ({kind.name})" if kind.name else kind.number for f in mediated for kind in f.vgpu_types)
    if types := [*dict.fromkeys(kinds)]:
        active = counted(sum(len(f.mediated_devices) for f in mediated), "mediated device")
        driver, names = main.driver or "a driver", listed(types, 4)
        yield finding(Code.MEDIATED_TYPES, place=place, driver=driver, types=names, active=active)
    if main.mig is not None and main.mig.instances:
        instances = counted(len(main.mig.instances), "GPU instance")
        yield finding(Code.MIG_ACTIVE, place=place, severity=own, instances=instances, address=main.address)
    if not main.reset_methods:
        yield finding(Code.NO_RESET_METHOD, place=place)
    if not main.bdf.fits_nova:
        yield finding(Code.PCI_DOMAIN_TOO_WIDE, place=place)
    missing = (b for f in gpu.functions for b in f.bars if not b.io and b.size and b.start == 0)  # where RAM is
    if sizes := ", ".join(f"BAR {b.index} ({size(b.size)})" for b in missing):
        yield finding(Code.BAR_UNASSIGNED, place=place, bars=sizes)


def _framebuffer_advice(host: Host, main: Function) -> str:
    """The remedy without a second display: vfio-pci frees VGA functions itself (``vfio_pci_vga_init``)."""
    releases = [kernel.release for kernel in host.boot.kernels] or [host.kernel.release or "0"]
    is_removed = all(int(major[0]) >= 6 for release in releases if (major := re.match(r"\d{1,9}", release)))
    if is_removed and main.pci_class.startswith("0300"):
        return "no argument is needed: since Linux 6.0, vfio-pci removes the framebuffer when it binds the GPU"
    return "add `video=efifb:off` or `initcall_blacklist=sysfb_init` to the kernel's arguments"


def boot_record(host: Host) -> list[str]:
    """The lines of the record of gpustack's script that creates virtual functions: one for each physical function."""
    return host.text(RECORD).splitlines()


def made_at_boot(host: Host) -> dict[str, int]:
    """The number of virtual functions that the script left at each physical function, by address."""
    return {match[1]: int(match[2]) for line in boot_record(host) if (match := _HAS.fullmatch(line)) is not None}


def skipped_at_boot(host: Host) -> dict[str, str]:
    """The script's last reason to skip a physical function since the boot, by address."""
    return {match[1]: match[2] for line in boot_record(host) if (match := _SKIPPED.fullmatch(line)) is not None}


def wanted_at_boot(host: Host, card: Function) -> list[tuple[int, str]]:
    """The vGPUs that the script prepared on a card at its last start: at least this number, and the type of each."""
    wanted: list[tuple[int, str]] = []
    for match in (_WANTS.fullmatch(line) for line in boot_record(host)):
        if match is not None and match[1] == card.address:
            before = wanted if int(match[4] or 0) else []
            wanted = [*before, (int(match[2].replace("-", "1")), match[3])]
    return wanted


def of_instances(functions: Iterable[Function]) -> Iterator[str]:
    """The virtual functions that instances use, or may use, each with its users or its driver.

    A passthrough driver is enough: libvirt binds it for an instance. NVIDIA's driver has all virtual functions of its
    cards; those with a vGPU type are usable.
    """
    for function in functions:
        if function.holders:
            yield f"{function.address} ({', '.join(function.holders)})"
        elif is_passthrough_driver(function.driver):
            yield f"{function.address} ({function.driver})"
        elif function.vgpu_type and function.holders is None:
            yield f"{function.address} ({function.driver}, {USER_UNKNOWN})"
        elif users := [f"{d.uuid}: {d.user}" for d in function.mediated_devices if d.user is not None]:
            yield f"{function.address} ({', '.join(users)})"


def _quirks(host: Host, gpu: Gpu, *, switched: bool) -> Iterator[Finding]:
    has_variant = is_passthrough_driver(gpu.main.driver) and gpu.main.driver not in BY_ID
    for quirk in _known_quirks(host, gpu.main):
        if (quirk.key == "nvswitch" and switched) or (quirk.key == "coherent-memory" and has_variant):
            continue  # NVSWITCH_FABRIC or BOUND_TO_VARIANT_DRIVER reports it
        code = Code.RESET_DEFECT if quirk.key in _RESET_QUIRKS else Code.CARD_NOTE
        severity = Severity.WARNING if quirk.key in _GRAVE_QUIRKS else None
        yield finding(code, place=place_of(host, gpu), severity=severity, title=quirk.title, advice=quirk.remedy)


def _known_quirks(host: Host, main: Function) -> tuple[catalogue.Quirk, ...]:
    """The quirks of a card; integrated graphics that are not in the catalogue have the quirk of their vendor."""
    if (card := card_of(main)) is not None:
        return catalogue.quirks_of(card)
    is_graphics = classes.is_display(main.pci_class) and is_integrated(host, main)
    key = _INTEGRATED_QUIRKS.get(main.vendor) if is_graphics else None
    return () if key is None else (catalogue.quirks()[key],)

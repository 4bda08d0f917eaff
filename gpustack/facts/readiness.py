"""Whether a GPU could be given to a guest now, and the reasons why not.

Pure: from the facts of one host. What each code means is told in ``gpustack/data/findings/device.toml``.

Three kinds of findings come out of it. *Errors* are faults of the machine, which no configuration mends: a plan
refuses the GPU. Those of :data:`PREPARATION` are what preparing the host is for (IOMMU off, host drivers): the GPU
isn't ready, and a plan goes on. Everything else is worth knowing, and takes nothing from a GPU's readiness.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpustack.facts.gpus import Gpu, card_of, gpus, is_integrated
from gpustack.facts.model import Bar, Function, Host, IommuGroup
from gpustack.facts.needs import idle, in_the_way, is_host_driver, is_passthrough_driver, needs, peers
from gpustack.findings import Finding, Severity, finding
from gpustack.pci import catalogue, classes

PREPARATION = frozenset({"GPU002", "GPU003", "GPU010", "GPU011", "GPU016", "GPU017", "GPU024", "GPU032"})
"""Codes below ``error`` that hold a GPU back all the same, until the host is prepared or better known."""

_FRAMEBUFFER = re.compile(r"bootfb|(?:efi|vesa|simple|offb?)[-_]?(?:fb|drm|framebuffer)|sysfb", re.IGNORECASE)
_RESET_QUIRKS = frozenset({"amd-reset", "blackwell-reset", "instinct-reset"})
_GRAVE_QUIRKS = frozenset({"coherent-memory", "nvlink5-bridge", "igd", "amd-apu"})
_INTEGRATED_QUIRKS = {"8086": "igd", "1002": "amd-apu"}
_IOMMU_TABLES = {"x86_64": "DMAR or IVRS", "aarch64": "IORT"}
_X86 = (None, "x86_64")
_XEN = frozenset({"xenfs", "xen_privcmd"})  # they load under Xen only
_OR_NONE = "a machine without it can't give GPUs to guests"
_FIRMWARE = {
    "GenuineIntel": f"switch on VT-d in the firmware setup, then scan again; {_OR_NONE}",
    "AuthenticAMD": f"switch on AMD-Vi (IOMMU) in the firmware setup, then scan again; {_OR_NONE}",
    "": f"switch on VT-d (Intel) or AMD-Vi/IOMMU (AMD) in the firmware setup, then scan again; {_OR_NONE}",
}
_OTHER_FIRMWARE = f"see the machine's manual for how its IOMMU is switched on, then scan again; {_OR_NONE}"
_NO_GROUPS = "the kernel made no IOMMU groups, and the firmware announces none"
_TRUSTED = "only for guests that are trusted: options.allow_unsafe_interrupts in the spec"
_REMAPPING = (
    "switch interrupt remapping (x2APIC) on in the firmware setup, or remove intremap=off and nointremap from the "
    f"kernel's arguments; {_TRUSTED}"
)
_VIRTUAL_REMAPPING = f"give the virtual machine's IOMMU interrupt remapping (QEMU: intremap=on); {_TRUSTED}"
_VIRTUALIZATION = "switch on VT-x (Intel) or SVM (AMD) in the firmware setup, then scan again"
_NESTED = "switch on nested virtualization for this virtual machine (libvirt: <cpu mode='host-passthrough'/>)"
_IOMMU_OFF = re.compile(r"(?:intel_iommu|amd_iommu|iommu)=(?:\S*,)?off(?:,\S*)?")
_PLAIN = ("vfio-pci", "pci-stub")
_SHOWN_PATHS = 3
_DEVICES = "/sys/bus/pci/devices"
_GROUPS = "/sys/kernel/iommu_groups"


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What stands between a GPU and a guest.

    :ivar reasons: why a guest can't have it now, gravest first; empty for a GPU that is ready.
    :ivar notes: what else is worth knowing before one has it.
    """

    reasons: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Whether a guest could have it now: its closure is bound for guests, and the IOMMU confines it."""
        return not self.reasons


def assess(host: Host, gpu: Gpu, *, of_host: Sequence[Finding] | None = None) -> Readiness:
    """Sort the findings of a GPU into reasons and notes; ``of_host`` as for :func:`reasons`."""
    found = sorted(reasons(host, gpu, of_host=of_host), key=lambda f: (-f.severity.rank, f.code))
    return Readiness(
        reasons=tuple(f for f in found if holds_back(f)), notes=tuple(f for f in found if not holds_back(f))
    )


def holds_back(found: Finding) -> bool:
    """Whether a finding keeps its GPU from being ready."""
    return found.severity is Severity.ERROR or found.code in PREPARATION


def reasons(host: Host, gpu: Gpu, *, of_host: Sequence[Finding] | None = None) -> tuple[Finding, ...]:
    """Everything there is to say about one GPU: codes GPU010 and up, and the host's findings that hold it back.

    The latter have the host's name as their place, and are among :func:`host_reasons` too.

    :param of_host: what :func:`host_reasons` says, for who asks about many GPUs of a host.
    """
    whole = host_reasons(host) if of_host is None else of_host
    return (
        *(f for f in whole if holds_back(f)),
        *_group(host, gpu),
        *_binding(host, gpu),
        *_device(host, gpu),
        *_quirks(host, gpu, switched=any(f.code == "GPU008" for f in whole)),
    )


def host_reasons(host: Host) -> tuple[Finding, ...]:
    """Everything there is to say about the host as a whole: codes GPU001 to GPU009."""
    return (*_iommu(host), *_circumstances(host), *_nvswitches(host), *_address_space(host))


# --- the host ------------------------------------------------------------------------------------------------


def _iommu(host: Host) -> Iterator[Finding]:
    iommu, place = host.iommu, host.hostname
    if not host.pci and host.boot.firmware is None:
        return  # a mounted disk: there is no firmware to say anything of
    if not _iommu_active(host):
        if _unreadable(host, _GROUPS):
            return  # GPU024 says so, for each GPU
        if announced := iommu.acpi_tables or iommu.units:
            firmware = f"though the firmware announces it ({', '.join(announced)})"
        elif _unreadable(host, "/sys/firmware/acpi/tables"):
            firmware = "and whether the firmware announces it could not be read"
        else:
            yield _no_iommu(host)
            return
        yield finding("GPU002", place=place, firmware=firmware, cause=_cause(host))
    elif iommu.interrupt_remapping is False and host.architecture in _X86:
        advice = _VIRTUAL_REMAPPING if _is_virtual(host) else _REMAPPING
        yield finding("GPU004" if iommu.unsafe_interrupts else "GPU003", place=place, advice=advice)


def _no_iommu(host: Host) -> Finding:
    """Why there is no IOMMU: the firmware announces none, or that can't be seen from here."""
    place, is_x86 = host.hostname, host.architecture in _X86
    if host.container or (is_x86 and host.iommu.tables_listed is False):
        where = f"inside a container ({host.container})" if host.container else f"below {host.root}"
        return finding("GPU032", place=place, where=where)
    if _is_virtual(host):
        return finding("GPU033", place=place)
    if not is_x86 and not host.iommu.tables_listed:
        return finding("GPU001", place=place, why=_NO_GROUPS, advice=_OTHER_FIRMWARE)
    tables = _IOMMU_TABLES.get(host.architecture or "x86_64", "IOMMU")
    why = f"the firmware has no {tables} table, so the kernel has nothing to switch on"
    advice = (_FIRMWARE.get(host.cpu.vendor or "") or _FIRMWARE[""]) if is_x86 else _OTHER_FIRMWARE
    return finding("GPU001", place=place, why=why, advice=advice)


def _is_virtual(host: Host) -> bool:
    """Whether the host is a virtual machine itself; Xen's first domain shows the flag too, and is the machine."""
    return "hypervisor" in host.cpu.flags and _XEN.isdisjoint(host.kernel.loaded_modules)


def _iommu_active(host: Host) -> bool:
    return host.iommu.group_count > 0 or bool(host.groups)


def _cause(host: Host) -> str:
    """The argument of the running kernel that switched the IOMMU off."""
    for argument in (host.kernel.command_line or "").split():
        if _IOMMU_OFF.fullmatch(argument):
            return f" ({argument} on its command line)"
    return ""


def _circumstances(host: Host) -> Iterator[Finding]:
    if host.iommu.no_iommu_mode:
        yield finding("GPU030", place=host.hostname)
    if host.architecture in _X86 and host.cpu.vendor is not None and not {"vmx", "svm"} & {*host.cpu.flags}:
        advice = _NESTED if _is_virtual(host) else _VIRTUALIZATION
        yield finding("GPU031", place=host.hostname, advice=advice)
    if host.container:
        yield finding("GPU005", place=host.hostname, container=host.container)
    if host.unread:
        paths = [entry.path for entry in host.unread]
        more = f" and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
        yield finding(
            "GPU006",
            place=host.hostname,
            count=_count(len(paths), "path"),
            paths=", ".join(paths[:_SHOWN_PATHS]) + more,
            advice="scan as root (`sudo gpustack scan`, or `--sudo` over SSH)"
            if host.privileged is False
            else "the snapshot says why, under `unread`",
        )
    locked = host.kernel.lockdown not in (None, "none")
    if host.kernel.secure_boot or locked:
        said = (
            *(("Secure Boot is on",) if host.kernel.secure_boot else ()),
            *((f"the kernel is in lockdown ({host.kernel.lockdown})",) if locked else ()),
        )
        yield finding("GPU007", place=host.hostname, state=" and ".join(said))


def nvswitches(host: Host) -> tuple[Function, ...]:
    """The NVSwitches of a host."""
    return tuple(f for f in host.pci if catalogue.is_nvswitch(f.vendor, f.product, f.pci_class))


def _nvswitches(host: Host) -> Iterator[Finding]:
    if found := nvswitches(host):
        yield finding("GPU008", place=host.hostname, count=_count(len(found), "NVSwitch", "NVSwitches"))


def _address_space(host: Host) -> Iterator[Finding]:
    bits = host.cpu.physical_address_bits
    windows = sum(b.size for g in gpus(host) for f in g.functions for b in f.bars if not b.io)
    memory = (host.memory_mib or 0) << 20
    if bits is not None and 0 < bits <= 64 and windows + memory > 1 << bits:
        yield finding(
            "GPU009",
            place=host.hostname,
            bars=size(windows),
            memory=size(memory),
            bits=bits,
            space=size(1 << bits),
        )


# --- one GPU -------------------------------------------------------------------------------------------------


def _place(host: Host, gpu: Gpu) -> str:
    return f"{host.hostname} {gpu.main.address}"


def _group(host: Host, gpu: Gpu) -> Iterator[Finding]:
    place, group = _place(host, gpu), gpu.main.iommu_group
    if group is None:
        if _iommu_active(host) and not _unreadable(host, f"{_DEVICES}/{gpu.main.address}/iommu_group"):
            yield finding("GPU012", place=place)
        if needed := needs(host, gpu):
            yield finding("GPU034", place=place, needs="; ".join(map(str, needed)))
        return
    if needed := needs(host, gpu):
        yield finding("GPU013", place=place, group=group, needs="; ".join(map(str, needed)))
    if others := peers(gpu):
        yield finding("GPU014", place=place, group=group, peers=", ".join(f.address for f in others))
    yield from _direct(host, gpu)
    yield from _idle(host, gpu)


def _group_of(host: Host, gpu: Gpu) -> IommuGroup:
    """What the collector read of a GPU's group; an empty one where it read nothing."""
    number = gpu.main.iommu_group
    return next((g for g in host.iommu.groups if g.number == number), IommuGroup(number=-1))


def _direct(host: Host, gpu: Gpu) -> Iterator[Finding]:
    """Ranges that the firmware wants mapped one to one: the kernel does not let a guest have such a group.

    Intel's driver has always refused (``device_is_rmrr_locked``), the IOMMU core does for all since Linux 6.6
    (``iommu_device_require_direct``). Displays and USB controllers are exempt: their type is ``direct-relaxable``.
    """
    ranges = [
        f"{region.start:#x}-{region.end:#x}" for region in _group_of(host, gpu).reserved if region.type == "direct"
    ]
    if ranges:
        release = re.match(r"([0-9]+)\.([0-9]+)", host.kernel.release or "")
        is_old = release is not None and (int(release[1]), int(release[2])) < (6, 6)
        severity = Severity.WARNING if is_old and "DMAR" not in host.iommu.acpi_tables else None
        place, group = _place(host, gpu), gpu.main.iommu_group
        yield finding("GPU028", place=place, severity=severity, group=group, ranges=", ".join(ranges))


def _idle(host: Host, gpu: Gpu) -> Iterator[Finding]:
    """Members of the group without a driver: vfio accepts them, until a host driver takes one."""
    found = [f for f in idle(host, gpu) if not _unreadable(host, f"{_DEVICES}/{f.address}/driver")]
    wanted = [f for f in found if classes.is_controller(f.pci_class) and f.modules]
    others = [f for f in found if f not in wanted]
    for code, functions in (("GPU026", wanted), ("GPU025", others)):
        if functions:
            is_grave = any(classes.is_controller(f.pci_class) or f.modules for f in functions)
            yield finding(
                code,
                place=_place(host, gpu),
                severity=None if is_grave else Severity.INFO,
                group=gpu.main.iommu_group,
                members=", ".join(_idle_member(f) for f in functions),
            )


def _idle_member(function: Function) -> str:
    modules = f"; {', '.join(function.modules)} fits it" if function.modules else ""
    what = catalogue.describe(function.vendor, function.product, function.pci_class)
    return f"{function.address} ({what}{modules})"


def _binding(host: Host, gpu: Gpu) -> Iterator[Finding]:
    place = _place(host, gpu)
    unknown = [
        f"{name} of {f.address}"
        for f in (*gpu.functions, *gpu.neighbours)
        for name in ("driver", "iommu_group")
        if _unreadable(host, f"{_DEVICES}/{f.address}/{name}")
    ]
    if not _iommu_active(host) and _unreadable(host, _GROUPS):
        unknown.append(_GROUPS)
    kept = _group_of(host, gpu)
    unknown += [f"{name}, a member of its IOMMU group" for name in kept.devices if name not in host.functions]
    if unknown:
        yield finding("GPU024", place=place, names=", ".join(unknown))
    needed = [need.function for need in needs(host, gpu)]  # GPU013 is about these
    holding = (*(f for f in gpu.functions if is_host_driver(f.driver)), *in_the_way(host, gpu))
    held = [f for f in holding if f not in needed]
    if held:
        yield finding("GPU010", place=place, drivers=", ".join(_held(gpu, held)))
    free = [f for f in gpu.functions if f.driver is None and not _unreadable(host, f"{_DEVICES}/{f.address}/driver")]
    if free:
        yield finding("GPU011", place=place, functions=", ".join(_called(gpu, f) for f in free))
    variants = sorted({f.driver for f in gpu.functions if f.driver and is_passthrough_driver(f.driver)} - {*_PLAIN})
    if variants:
        yield finding("GPU023", place=place, driver=", ".join(variants))


def _held(gpu: Gpu, held: Iterable[Function]) -> Iterator[str]:
    return (f"{f.driver} holds {_called(gpu, f)}" for f in held)


def _called(gpu: Gpu, function: Function) -> str:
    """A function as seen from its GPU, without its address where that goes without saying."""
    if function is gpu.main:
        return "the GPU"
    if function.bdf.slot == gpu.main.bdf.slot:
        return f"its {classes.word(function.pci_class)}"
    return f"{function.address} ({classes.word(function.pci_class)})"


def _device(host: Host, gpu: Gpu) -> Iterator[Finding]:
    place, main = _place(host, gpu), gpu.main
    gone = [f for f in gpu.functions if f.responds is False]
    if gone:
        yield finding("GPU027", place=place, functions=", ".join(_called(gpu, f) for f in gone))
    if main.boot_vga:
        yield finding("GPU015", place=place)
    claims = sorted({claim for f in gpu.functions for claim in f.claims if _FRAMEBUFFER.search(claim)})
    if claims:
        yield finding("GPU016", place=place, claims=", ".join(claims))
    if main.sriov_numvfs:
        enabled = f"{_count(main.sriov_numvfs, 'virtual function')} of it {'is' if main.sriov_numvfs == 1 else 'are'}"
        yield finding("GPU017", place=place, enabled=enabled)
    if not main.reset_methods:
        yield finding("GPU018", place=place)
    if not main.bdf.fits_nova:
        yield finding("GPU020", place=place)
    missing = [b for f in gpu.functions for b in f.bars if _is_unassigned(b)]
    if missing:
        sizes = ", ".join(f"BAR {b.index} ({size(b.size)})" for b in missing)
        yield finding("GPU021", place=place, bars=sizes)


def _is_unassigned(bar: Bar) -> bool:
    """A memory BAR that has a size and starts at 0 got no address: RAM is there."""
    return not bar.io and bar.size > 0 and bar.start == 0


def _quirks(host: Host, gpu: Gpu, *, switched: bool) -> Iterator[Finding]:
    for quirk in _known_quirks(host, gpu.main):
        if quirk.key == "nvswitch" and switched:
            continue  # GPU008 says so
        if quirk.key in _RESET_QUIRKS:
            code, severity = "GPU019", None
        else:
            code, severity = "GPU022", Severity.WARNING if quirk.key in _GRAVE_QUIRKS else None
        yield finding(code, place=_place(host, gpu), severity=severity, title=quirk.title, advice=quirk.remedy)


def _known_quirks(host: Host, main: Function) -> tuple[catalogue.Quirk, ...]:
    """The quirks of a card; integrated graphics that the catalogue does not know share those of their maker."""
    if (card := card_of(main)) is not None:
        return catalogue.quirks_of(card)
    is_graphics = classes.is_display(main.pci_class) and is_integrated(host, main)
    key = _INTEGRATED_QUIRKS.get(main.vendor) if is_graphics else None
    return () if key is None else (catalogue.quirks()[key],)


# --- words ---------------------------------------------------------------------------------------------------


def _unreadable(host: Host, path: str) -> bool:
    return any(entry.path == path for entry in host.unread)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Bytes for people, in the largest unit that divides them well: ``256 MiB``, ``1.5 TiB``."""
    value: float = min(number, 1 << 80)  # a snapshot may say anything
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"

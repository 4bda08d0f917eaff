"""Findings about a host that affect all its GPUs: IOMMU, firmware, processor, unreadable facts.

Pure: computed from the facts of one host. Codes GPU001 to GPU009 and GPU030 to GPU033.
"""

import re
from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import counted, listed
from gpustack.hosts.facts.gpus import gpus, nvswitches
from gpustack.hosts.facts.model import Host
from gpustack.hosts.readiness import isolation

GROUPS = "/sys/kernel/iommu_groups"
"""The kernel's directory of IOMMU groups."""

_OF_ARM = "IORT"  # describes interrupts as well, so servers without an SMMU have it
_IOMMU_TABLES = {"x86_64": "DMAR or IVRS", "aarch64": _OF_ARM}
_X86 = (None, "x86_64")
_XEN = frozenset({"xenfs", "xen_privcmd"})  # loaded under Xen only
_OR_NONE = "a machine without it can't give GPUs to guests"
_FIRMWARE = {
    "GenuineIntel": f"switch on VT-d in the firmware setup, then scan again; {_OR_NONE}",
    "AuthenticAMD": f"switch on AMD-Vi (IOMMU) in the firmware setup, then scan again; {_OR_NONE}",
    "": f"switch on VT-d (Intel) or AMD-Vi/IOMMU (AMD) in the firmware setup, then scan again; {_OR_NONE}",
}
_OTHER_FIRMWARE = f"see the machine's manual for how its IOMMU is switched on, then scan again; {_OR_NONE}"
_NO_GROUPS = "the kernel made no IOMMU groups, and the firmware announces none"
_NO_SMMU = "the kernel made no IOMMU groups, and found no SMMU in the firmware's IORT table"
_TRUSTED = "only for guests that are trusted: options.allow_unsafe_interrupts in the spec"
_REMAPPING = (
    "switch interrupt remapping (x2APIC) on in the firmware setup, or remove intremap=off and nointremap from the "
    f"kernel's arguments; {_TRUSTED}"
)
_VIRTUAL_REMAPPING = f"give the virtual machine's IOMMU interrupt remapping (QEMU: intremap=on); {_TRUSTED}"
_VIRTUALIZATION = "switch on VT-x (Intel) or SVM (AMD) in the firmware setup, then scan again"
_NESTED = "switch on nested virtualization for this virtual machine (libvirt: <cpu mode='host-passthrough'/>)"
_IOMMU_OFF = re.compile(r"(?:intel_iommu|amd_iommu|iommu)=(?:\S*,)?off(?:,\S*)?")
_SHOWN_PATHS = 3


def host_reasons(host: Host) -> tuple[Finding, ...]:
    """All findings about the host: codes GPU001 to GPU009, GPU030 to GPU033, GPU244 and GPU245."""
    return (
        *_iommu(host),
        *_circumstances(host),
        *_nvswitches(host),
        *_address_space(host),
        *isolation.of_host(host),
    )


def _iommu(host: Host) -> Iterator[Finding]:
    iommu, place = host.iommu, host.hostname
    if not host.pci and host.boot.firmware is None:
        return  # a mounted disk has no firmware to check
    if not iommu_active(host):
        if unreadable(host, GROUPS):
            return  # READINESS_UNKNOWN reports it, for each GPU
        if announced := [table for table in iommu.acpi_tables if table != _OF_ARM] or iommu.units:
            firmware = f"though the firmware declares it ({', '.join(announced)})"
        elif unreadable(host, "/sys/firmware/acpi/tables"):
            firmware = "and whether the firmware declares it could not be read"
        else:
            yield _no_iommu(host)
            return
        yield finding(Code.IOMMU_INACTIVE, place=place, firmware=firmware, cause=_cause(host))
    elif iommu.interrupt_remapping is False and host.architecture in _X86:
        advice = _VIRTUAL_REMAPPING if is_virtual_machine(host) else _REMAPPING
        code = Code.UNSAFE_INTERRUPTS_IN_FORCE if iommu.unsafe_interrupts else Code.NO_INTERRUPT_REMAPPING
        yield finding(code, place=place, advice=advice)


def _no_iommu(host: Host) -> Finding:
    """The finding for a missing IOMMU: not declared by the firmware, or not visible from here."""
    place, is_x86 = host.hostname, host.architecture in _X86
    if host.container or (is_x86 and host.iommu.tables_listed is False):
        location = f"inside a container ({host.container})" if host.container else f"below {host.root}"
        return finding(Code.IOMMU_UNKNOWN, place=place, where=location)
    if is_virtual_machine(host):
        return finding(Code.VIRTUAL_MACHINE_WITHOUT_IOMMU, place=place)
    if not is_x86 and (host.iommu.acpi_tables or not host.iommu.tables_listed):
        why = _NO_SMMU if host.iommu.acpi_tables else _NO_GROUPS
        return finding(Code.NO_IOMMU, place=place, why=why, advice=_OTHER_FIRMWARE)
    tables = _IOMMU_TABLES.get(host.architecture or "x86_64", "IOMMU")
    why = f"the firmware has no {tables} table, so the kernel has nothing to switch on"
    advice = (_FIRMWARE.get(host.cpu.vendor or "") or _FIRMWARE[""]) if is_x86 else _OTHER_FIRMWARE
    return finding(Code.NO_IOMMU, place=place, why=why, advice=advice)


def is_virtual_machine(host: Host) -> bool:
    """Whether the host is a virtual machine. Xen's dom0 has the flag ``hypervisor`` too, but is not counted."""
    return "hypervisor" in host.cpu.flags and _XEN.isdisjoint(host.kernel.loaded_modules)


def iommu_active(host: Host) -> bool:
    """Whether the kernel created IOMMU groups."""
    return host.iommu.group_count > 0 or bool(host.groups)


def _cause(host: Host) -> str:
    """The argument of the running kernel that switched the IOMMU off."""
    for argument in (host.kernel.command_line or "").split():
        if _IOMMU_OFF.fullmatch(argument):
            return f" ({argument} on its command line)"
    return ""


def _circumstances(host: Host) -> Iterator[Finding]:
    if host.iommu.no_iommu_mode:
        yield finding(Code.NO_IOMMU_MODE, place=host.hostname)
    hides_it = not _XEN.isdisjoint(host.kernel.loaded_modules)
    if host.architecture in _X86 and host.cpu.vendor and not hides_it and not {"vmx", "svm"} & {*host.cpu.flags}:
        advice = _NESTED if is_virtual_machine(host) else _VIRTUALIZATION
        yield finding(Code.NO_HARDWARE_VIRTUALIZATION, place=host.hostname, advice=advice)
    if host.container:
        yield finding(Code.READ_IN_CONTAINER, place=host.hostname, container=host.container)
    if host.unread:
        paths = [entry.path for entry in host.unread]
        yield finding(
            Code.FACTS_UNREADABLE,
            place=host.hostname,
            count=counted(len(paths), "path"),
            paths=listed(paths, _SHOWN_PATHS),
            advice="add `--sudo` to scan as root"
            if host.privileged is False
            else "see the reason in the snapshot, under `unread`",
        )
    features = ["Secure Boot is on"] if host.kernel.secure_boot else []
    if host.kernel.lockdown not in (None, "none"):
        features.append(f"the kernel is in lockdown ({host.kernel.lockdown})")
    if features:
        yield finding(Code.SECURE_BOOT, place=host.hostname, state=" and ".join(features))


def _nvswitches(host: Host) -> Iterator[Finding]:
    if switches := nvswitches(host):
        yield finding(Code.NVSWITCH_FABRIC, place=host.hostname, count=counted(len(switches), "NVSwitch"))


def _address_space(host: Host) -> Iterator[Finding]:
    bits = host.cpu.physical_address_bits
    windows = sum(function.windows for gpu in gpus(host) for function in gpu.functions)
    memory = (host.memory_mib or 0) << 20
    if bits is not None and 0 < bits <= 64 and windows + memory > 1 << bits:
        bars, ram, space = map(size, (windows, memory, 1 << bits))
        yield finding(
            Code.BARS_BEYOND_CPU_ADDRESSES, place=host.hostname, bars=bars, memory=ram, bits=bits, space=space
        )


def unreadable(host: Host, path: str) -> bool:
    """Whether a path exists but could not be read."""
    return any(entry.path == path for entry in host.unread)


def size(number: int) -> str:
    """Format a number of bytes: ``256 MiB``, ``1.5 TiB``."""
    value: float = min(number, 1 << 80)  # a snapshot may contain any number
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"

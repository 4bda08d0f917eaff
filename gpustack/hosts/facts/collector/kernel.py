"""The running kernel and its IOMMU."""

import re
from typing import Any, Container, Dict, List, Optional

from .groups import numbers
from .kernel_log import kernel_log
from .limits import CONTROL_BUT_TAB, LINE_LIMIT, MODULE_NAME, RELEASE, VALUE_LIMIT
from .reader import HostRoot

EFIVARS = "/sys/firmware/efi/efivars"
GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""The vendor of the firmware's own variables."""


def secure_boot(host: HostRoot) -> Optional[bool]:
    """Whether the firmware enforces Secure Boot.

    An EFI variable file has four bytes of attributes, then the data: one byte here. Firmware without EFI or without
    the variable has no Secure Boot. ``None`` if the variables are not mounted or not readable.
    """
    if not host.exists("/sys/firmware/efi"):
        return False if host.exists("/sys/firmware") else None
    path = f"{EFIVARS}/SecureBoot-{GLOBAL}"
    if not host.exists(path):
        return False if host.names(EFIVARS) else None
    content = host.data(path, VALUE_LIMIT)
    if content is None:
        return None
    if len(content) != 5 or content[4] not in (0, 1):
        host.note(path, "unexpected content")
        return None
    return content[4] == 1


def lockdown(host: HostRoot) -> Optional[str]:
    """The kernel's lockdown mode: the bracketed word of ``[none] integrity confidentiality``."""
    match = re.search(r"\[([a-z]+)\]", host.value("/sys/kernel/security/lockdown") or "")
    return match.group(1) if match else None


NVIDIA_RELEASE = re.compile(r"[0-9]{2,4}(?:\.[0-9]{1,4}){1,2}")


def running_release(host: HostRoot) -> Optional[str]:
    """The release of the running kernel."""
    return host.word("/proc/sys/kernel/osrelease", RELEASE)


def loaded_modules(host: HostRoot) -> List[str]:
    """The names of the loaded modules, from ``/proc/modules``."""
    lines = (host.text("/proc/modules") or "").splitlines()
    return sorted(name for name in {line.split(" ", 1)[0] for line in lines} if MODULE_NAME.fullmatch(name))


def kernel(host: HostRoot) -> Dict[str, Any]:
    """The running kernel."""
    log, dropped, since = kernel_log(host)
    command_line = host.text("/proc/cmdline", LINE_LIMIT)
    if command_line is not None:
        command_line = command_line.rstrip("\n\0")
        if CONTROL_BUT_TAB.search(command_line):
            host.note("/proc/cmdline", "unexpected content")
            command_line = None
    booted = re.search(r"^btime ([0-9]{1,12})$", host.text("/proc/stat") or "", re.MULTILINE)
    return {
        "release": running_release(host),
        "command_line": command_line,
        "booted_at": int(booted.group(1)) if booted else None,
        "lockdown": lockdown(host),
        "secure_boot": secure_boot(host),
        "loaded_modules": loaded_modules(host),
        "nvidia_driver": host.word("/sys/module/nvidia/version", NVIDIA_RELEASE),
        "log": log,
        "log_dropped": dropped,
        "log_since": since,
    }


def interrupt_remapping(interrupts: str) -> Optional[bool]:
    """Whether interrupt remapping is active, by the names of interrupt chips in ``/proc/interrupts``.

    With remapping, the chip names of I/O APIC and PCI MSI interrupts start with ``IR-`` (``IR-IO-APIC``,
    ``IR-PCI-MSI``, ``IR-PCI-MSIX-0000:01:00.0``), on Intel (``drivers/iommu/intel/irq_remapping.c``) and AMD
    (``drivers/iommu/amd/iommu.c``). Arm's ITS isolates the MSIs of each device (``ITS-MSI``, ``ITS-PCI-MSI``;
    ``drivers/irqchip/irq-gic-v3-its.c``, ``IRQ_DOMAIN_FLAG_ISOLATED_MSI``). ACPI tables only show the firmware's
    support, and the kernel log may be gone.

    :returns: ``None`` if there are no such interrupts, as on other architectures.
    """
    if re.search(r"\s(?:v?IR-(?:IO-APIC|PCI-MSI)|ITS-(?:PCI-)?MSI)", interrupts):
        return True
    return False if re.search(r"\s(?:IO-APIC|PCI-MSI)", interrupts) else None


IOMMU_TABLES = ("DMAR", "IVRS", "IORT", "VIOT")  # Intel, AMD, Arm SMMU, virtio-iommu


def iommu(host: HostRoot, no_iommu: Container[int]) -> Dict[str, Any]:
    """The IOMMU: ACPI tables, units, groups, interrupt remapping and vfio's unsafe modes.

    :param no_iommu: the numbers of vfio's no-IOMMU groups, which are not counted.
    """
    tables = host.names("/sys/firmware/acpi/tables")
    # If the firmware has several tables of a name, the kernel numbers them (DMAR1, DMAR2).
    kinds = {name.rstrip("0123456789") for name in tables}
    return {
        "acpi_tables": [name for name in IOMMU_TABLES if name in kinds],
        "units": host.names("/sys/class/iommu"),
        "tables_listed": bool(tables),
        "group_count": sum(1 for number in numbers(host) if number not in no_iommu),
        "interrupt_remapping": interrupt_remapping(host.text("/proc/interrupts") or ""),
        "unsafe_interrupts": host.flag("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"),
        "no_iommu_mode": host.flag("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"),
    }

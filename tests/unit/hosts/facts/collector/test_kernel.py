"""Firmware, lockdown and IOMMU of a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.kernel import interrupt_remapping
from support.sysroot import SysRoot, nvswitch_host, talk_host


@pytest.mark.parametrize(
    ("content", "state"),
    [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"\x06\0\0\0\x07", None), (b"", None)],
)
def test_secure_boot(tmp_path: Path, content: bytes, state: bool | None) -> None:
    root = SysRoot(tmp_path).host()
    path = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    document = collect(str(root.write(path, content).path))
    assert document["kernel"]["secure_boot"] is state
    assert [entry["path"] for entry in document["unread"]] == ([path] if state is None else [])


def test_secure_boot_without_its_variable(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().directory("/sys/firmware/efi/efivars")
    assert collect(str(root.path))["kernel"]["secure_boot"] is None  # efivars is not mounted
    root.write("/sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\0")
    assert collect(str(root.path))["kernel"]["secure_boot"] is False


def test_lockdown_is_the_bracketed_word(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    assert collect(str(root.path))["kernel"]["lockdown"] == "integrity"


def test_an_intel_and_an_amd_iommu(tmp_path: Path) -> None:
    intel = talk_host(tmp_path / "a").write("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n")
    facts = collect(str(intel.path))["iommu"]
    assert {group["number"]: group["devices"] for group in facts.pop("groups")}[7] == ["0000:88:00.0", "0000:88:00.1"]
    assert facts == {
        "acpi_tables": ["DMAR"],
        "tables_listed": True,
        "units": ["dmar0"],
        "group_count": 8,
        "interrupt_remapping": True,
        "unsafe_interrupts": False,
        "no_iommu_mode": None,
    }
    amd = collect(str(nvswitch_host(tmp_path / "b").path))["iommu"]
    assert (amd["acpi_tables"], amd["units"], amd["group_count"]) == (["IVRS"], ["ivhd0"], 22)


@pytest.mark.parametrize(
    ("interrupts", "state"),
    [
        ("   9:   0   0  IR-IO-APIC    9-fasteoi   acpi\n  26:  0  0  IR-PCI-MSI 524288-edge  PCIe PME\n", True),
        ("  31:   0  222 IR-PCI-MSIX-0000:00:01.0   3-edge      virtio0-stats\n", True),
        ("   9:   0   0  IO-APIC    9-fasteoi   acpi\n 120:  0  0  DMAR-MSI    0-edge  dmar0\n", False),
        ("  31:   0  222 PCI-MSIX-0000:00:01.0   3-edge      virtio0-stats\n", False),
        (" 120:  0  0  DMAR-MSI    0-edge  dmar0\nNMI:   0   0   Non-maskable interrupts\n", None),
        (" 12:  1  0  GICv3  27 Level  arch_timer\n", None),
        (" 12:  1  0  GICv3  27 Level  arch_timer\n 46:  0  0   ITS-MSI 16384 Edge      virtio1-config\n", True),
        ("206:  0  0  ITS-PCI-MSIX-0002:01:00.0   0 Edge      nvme0q0\n", True),
        (" 44:  0  0  GICv2m-PCI-MSI-0000:00:02.0   0 Edge      nvme0q0\n", None),
        ("", None),
    ],
)
def test_interrupt_remapping_by_the_names_of_the_chips(interrupts: str, state: bool | None) -> None:
    assert interrupt_remapping(interrupts) is state

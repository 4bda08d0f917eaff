"""``gpustack explain``: a finding, a class, a card or a message; an unknown subject gets the nearest ones."""

from __future__ import annotations

import re

import pytest

from gpustack.hosts.health.kernel_log import rows
from gpustack.repair.classes import CLASSES
from support.sign_samples import sample


def test_a_finding(gpustack):
    ran = gpustack("explain", "gpu112")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("ERROR GPU112 Two drivers in one IOMMU group\n\n")
    assert "\nRemedy: set the same `driver` for these models" in ran.out


@pytest.mark.parametrize("klass", CLASSES.values(), ids=str)
def test_a_class_is_explained_by_its_page(klass, gpustack):
    by_letter, by_name = gpustack("explain", klass.letter.lower()), gpustack("explain", klass.name)
    assert by_letter == by_name
    assert by_letter.out.startswith(f"# Class {klass}: ")
    assert "\n## Cause\n" in by_letter.out


def test_a_card_by_id_and_by_name(gpustack):
    by_id, by_name = gpustack("explain", "10DE:11B4"), gpustack("explain", "quadro", "k4200")
    assert by_id == by_name
    assert by_id.out.startswith("NVIDIA Quadro K4200 [10de:11b4]\nFamily: Kepler, workstation\n")
    assert "\nThe last guest driver branch is R470\n" in by_id.out


def test_several_cards_are_listed(gpustack):
    lines = gpustack("explain", "A100").out.splitlines()
    assert "NVIDIA A100 PCIe 80GB [10de:20b5]" in lines
    assert lines[-1] == "gpustack explain VENDOR:DEVICE shows one of them in full"


@pytest.mark.parametrize(
    ("subject", "remedy"),
    [
        ("GPU999", "codes begin with GPU0, "),
        ("migration-pined", "did you mean migration-pinned?"),
        ("sl", "classes: A ("),
        ("0000:65:00.0", "for a GPU of a host: gpustack gpu show HOST 0000:65:00.0"),
        ("WARNING GPU002 gpu05: the IOMMU is not active", "did you mean GPU002?"),
        ("NVRM: Xid (PCI:0000:65:00): 79, it's lost", "for a message of a kernel: gpustack explain --message 'NVRM: "),
    ],
)
def test_what_is_unknown(subject, remedy, gpustack):
    ran = gpustack("explain", subject)
    assert ran.code == 2
    assert f"→ {remedy}" in ran.err


def test_the_page_is_named_where_it_is_published(gpustack, monkeypatch):
    monkeypatch.setenv("GPUSTACK_DOCS_URL", "https://docs.example")
    assert gpustack("explain", "GPU112").out.endswith("\nhttps://docs.example/reference/findings/gpu112.html\n")
    assert gpustack("explain", "b").out.endswith("\nhttps://docs.example/runbook/class-b.html\n")
    assert gpustack("explain", "A100").out.endswith("\nhttps://docs.example/reference/generated/cards.html\n")


XID = "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"

OLD = "NVRM: The NVIDIA Tesla V100 GPU installed in this system is supported through the NVIDIA 580.xx Legacy drivers."
BAR = "pci 0000:65:00.0: BAR 1 [mem size 0x400000000 64bit pref]: can't assign; no space"
FAULT = "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:65:00.0 domain=0x0000 address=0x0 flags=0x0000]"
AER = "pcieport 0000:64:00.0: AER: Corrected error received: 0000:65:00.0"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (XID, "xid-154: The driver recommends a reboot"),
        (XID, "Action: host"),
        (XID, "Finding: ERROR GPU915 "),
        ("vfio-pci 0000:65:00.0: not ready 1023ms after FLR; waiting", "Harmless: the device can still become ready"),
        ("pcieport 0000:64:00.0: pciehp: Slot(5): Link Down", "Address: 0000:64:00.0"),
        (OLD, "Remedy: install a driver of branch R580 in the image"),
        (FAULT, "Source: linux, drivers/iommu/amd_iommu.c"),
        (AER, "Versions: 4.18.0 to 6.2.0"),
        (BAR, "Finding: ERROR GPU849 "),
        (BAR, "On a host: ERROR GPU021 "),
        (BAR, "Remedy: enable 64-bit BARs"),
    ],
)
def test_a_message_is_explained_by_its_sign(message, line, gpustack):
    ran = gpustack("explain", "--message", message)
    assert ran.code == 0
    assert any(each.startswith(line) for each in ran.out.splitlines()), ran.out


@pytest.mark.parametrize("row", {row["code"]: row for row in rows() if "code" in row and "pattern" in row}.values())
def test_a_message_of_each_finding_is_explained(row, gpustack):
    ran = gpustack("explain", "--message", sample(row["pattern"]))
    assert (ran.code, ran.err) == (0, "")
    assert re.search(rf"^Finding: [A-Z]+ {row['code']} .+\nRemedy: [^{{}}]+$", ran.out, re.MULTILINE), ran.out


def test_an_unknown_message(gpustack):
    ran = gpustack("explain", "--message", "usb 1-1: new high-speed USB device")
    assert (ran.code, ran.out) == (2, "")
    assert "no sign matches this message" in ran.err

"""Messages as kernels print them: from reports of such failures, and from the sources of Linux 5.4 to 6.12."""

from __future__ import annotations

import pytest

from gpustack.hosts.health.kernel_log import events

INELIGIBLE = "Device is ineligible for IOMMU domain attach due to platform RMRR requirement.  Contact your vendor."
REJECTED = (
    "Firmware has requested this device have a 1:1 IOMMU mapping, rejecting configuring the device without it. "
    "Contact your platform vendor."
)
R, P, F = "reset-failed", "power-state", "iommu-fault"


@pytest.mark.parametrize(
    ("message", "sign", "address"),
    [
        ("vfio-pci 0000:65:00.0: not ready 65535ms after FLR; giving up", R, "0000:65:00.0"),
        ("vfio-pci 0000:65:00.0: not ready 65535ms after bus reset; giving up", R, "0000:65:00.0"),
        ("pci 10000:01:00.0: not ready 65535ms after resume; giving up", R, "10000:01:00.0"),
        (
            "vfio-pci 0000:0a:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
            P,
            "0000:0a:00.0",
        ),
        (
            "vfio-pci 0000:0a:00.0: Unable to change power state from D3hot to D0, device inaccessible",
            P,
            "0000:0a:00.0",
        ),
        ("vfio-pci 0000:0a:00.0: Refused to change power state, currently in D3", P, "0000:0a:00.0"),
        (
            "DMAR: [DMA Write NO_PASID] Request device [65:00.0] fault addr 0xfe000000 [fault reason 0x05] PTE Write",
            F,
            "0000:65:00.0",
        ),
        ("DMAR: [INTR-REMAP] Request device [65:00.0] fault index 0x22 [fault reason 0x25] Blocked", F, "0000:65:00.0"),
        ("DMAR: DRHD: handling fault status reg 3", None, ""),
        (
            "vfio-pci 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001f address=0xfe flags=0x0020]",
            F,
            "0000:41:00.0",
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:41:00.0 domain=0x001f address=0xfe flags=0x0020]",
            F,
            "0000:41:00.0",
        ),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x001f address=0x0 flags=0x0]", F, "0000:41:00.0"),
        (f"vfio-pci 0000:07:00.0: DMAR: {INELIGIBLE}", "vfio-mapped", "0000:07:00.0"),
        (f"vfio-pci 0000:07:00.0: {INELIGIBLE}", "vfio-mapped", "0000:07:00.0"),
        (f"vfio-pci 0000:07:00.0: {REJECTED}", "vfio-mapped", "0000:07:00.0"),
        # Still waiting: it may become ready.
        ("vfio-pci 0000:65:00.0: not ready 1023ms after FLR; waiting", None, ""),
        ("systemd: not ready to change power state", None, ""),
    ],
)
def test_messages(message: str, sign: str | None, address: str) -> None:
    assert [(event.sign, event.address) for event in events([message])] == ([(sign, address)] if sign else [])

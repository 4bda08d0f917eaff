"""The columns of `gpustack health`."""

from __future__ import annotations

import pytest

from gpustack.base.columns import described
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.health.check import check
from gpustack.hosts.health.table import SIGNS, check_log, columns
from support.host_samples import function, raw_host


@pytest.mark.parametrize(
    ("link", "width"), [(None, "-"), ({"width": 8, "max_width": 16}, "x8"), ({"width": 63, "max_width": 16}, "-")]
)
def test_the_link_is_shown_by_its_width(link: dict[str, int] | None, width: str) -> None:
    (health,) = check(parse_host(raw_host(function("0000:81:00.0", link=link)), "gpu01")).gpus
    assert {c.title: c.cell(health) for c in columns(use=False)}["Link"] == width
    assert described(columns(use=False), health)["link_width"] == (link or {}).get("width")


START = "Linux version 6.1.0-50-amd64 (debian-kernel@lists.debian.org) #1 SMP"
HOST = (
    START,
    "pci 0000:80:03.0: [8086:2f08] type 01 class 0x060400",
    "pci 0000:88:00.0: [10de:20b5] type 00 class 0x030200",
    "pci 0000:07:00.0: [1a03:2000] type 00 class 0x030000",
    "pci 0000:80:03.0: PCI bridge to [bus 88]",
)


def codes(*lines: str) -> list[str]:
    _, found = check_log([f"[    1.000000] {line}" for line in lines], "log")
    return [f"{entry.code} {entry.place}" for entry in found]


def test_a_message_of_a_port_concerns_the_gpu_below_it() -> None:
    down = "pcieport 0000:{}.0: pciehp: Slot(3): Link Down"
    assert codes(*HOST, down.format("80:03")) == ["GPU924 log 0000:80:03.0"]
    assert codes(*HOST, down.format("80:04")) == []  # of another device
    assert codes(*HOST[2:3], down.format("80:04")) == ["GPU924 log 0000:80:04.0", "GPU939 log"]  # a log without start


def test_an_error_of_an_nvswitch_concerns_its_gpus() -> None:
    switch = "pci 0000:05:00.0: [10de:22a3] type 00 class 0x068000 PCIe Endpoint"
    fault = "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"
    assert codes(*HOST, switch, fault) == ["GPU920 log 0000:05:00.0"]
    assert codes(*HOST, switch.replace("10de", "1022"), fault) == []  # of another device


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("pcie_mp2_amd: probe of 0000:88:00.7 failed with error -95", []),  # the sensors of an APU
        ("nvidia-gpu 0000:88:00.3: probe with driver nvidia-gpu failed with error -110", []),  # the card's USB socket
        ("nvidia: probe of 0000:88:00.0 failed with error -1", ["GPU854 log 0000:88:00.0"]),
        ("vfio-pci 0000:88:00.0: probe with driver vfio-pci failed with error -22", ["GPU854 log 0000:88:00.0"]),
        ("NovaCore 0000:88:00.0: probe with driver NovaCore failed with error -22", ["GPU854 log 0000:88:00.0"]),
    ],
)
def test_other_functions_of_a_slot_have_drivers_of_their_own(message: str, expected: list[str]) -> None:
    assert codes(*HOST, message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("nvme 0000:5e:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)", []),
        ("mlx5_core 0000:5e:00.0: not ready 65535ms after FLR; giving up", []),
        ("nvme 0000:5e:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x1e address=0x1da414000 flags=0x0050]", []),
        ("vfio-pci 0000:5e:00.0: not ready 65535ms after FLR; giving up", ["GPU769 log 0000:5e:00.0"]),
        ("NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.", ["GPU915 log 0000:5e:00.0"]),
        (
            "DMAR: [DMA Read NO_PASID] Request device [5e:00.0] fault addr 0x1000 [fault reason 0x06] PTE",
            ["GPU771 log 0000:5e:00.0"],
        ),
    ],
)
def test_in_a_log_without_start_the_driver_that_speaks_decides(message: str, expected: list[str]) -> None:
    assert codes(message) == [*expected, "GPU939 log"]


def test_a_bar_without_address_is_the_firmwares_on_a_host() -> None:
    _, (finding,) = check_log(
        [
            f"[    1.0] {line}"
            for line in (*HOST, "pci 0000:88:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]")
        ],
        "log",
    )
    assert (finding.code, finding.message[:5]) == ("GPU021", "BAR 1")
    assert "Above 4G Decoding" in (finding.remedy or "")


def test_a_message_without_address_concerns_the_host() -> None:
    assert codes(*HOST, "AMD-Vi: Completion-Wait loop timed out") == ["GPU928 log"]


def test_lines_of_an_error_record_are_one_sign() -> None:
    record = (
        "Hardware error from APEI Generic Hardware Error Source: 514",
        "event severity: fatal",
        " Error 0, type: fatal",
        "  section_type: PCIe error",
        "  device_id: 0000:88:00.0",
    )
    assert codes(*HOST, *(f"{{1}}[Hardware Error]: {line}" for line in record)) == ["GPU927 log 0000:88:00.0"]


def test_signs_of_an_earlier_boot_are_listed_and_no_finding() -> None:
    reset = "vfio-pci 0000:88:00.0: not ready 65535ms after FLR; giving up"
    assert codes(*HOST, reset, *HOST) == []
    (sign,), _ = check_log([f"[    1.000000] {line}" for line in (*HOST, reset, *HOST)], "log")
    assert [column.cell(sign) for column in SIGNS if column.key == "earlier_boot"] == ["yes"]


@pytest.mark.parametrize(
    "message",
    [
        "amdgpu 0000:88:00.0: Direct firmware load for amdgpu/gc_9_4_3_mes.bin failed with error -2",
        "xe 0000:88:00.0: Your graphics device 56c0 is not officially supported",
        "nouveau 0000:88:00.0: NVIDIA GV100 (140000a1)",
    ],
)
def test_a_driver_that_starts_later_outdates_messages_of_others(message: str) -> None:
    started = "[drm] Initialized amdgpu 3.64.0 for 0000:88:00.0 on minor 1"
    assert (len(codes(*HOST, message)), codes(*HOST, message, started)) == (1, [])
    (sign,), _ = check_log([f"[    1.000000] {line}" for line in (*HOST, message, *HOST, started)], "log")
    assert sign.earlier


def test_what_follows_from_a_cause_is_a_sign_and_no_finding() -> None:
    log = (
        "nvidia 0000:88:00.0: Direct firmware load for nvidia/550.90.07/gsp_tu10x.bin failed with error -2",
        "NVRM: GPU 0000:88:00.0: RmInitAdapter failed! (0x61:0x56:1697)",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )
    assert codes(*HOST, *log) == ["GPU862 log 0000:88:00.0"]
    assert codes(*HOST, *log[1:]) == ["GPU860 log 0000:88:00.0"]
    signs, _ = check_log([f"[    1.000000] {line}" for line in (*HOST, *log)], "log")
    assert [sign.code for sign in signs] == ["GPU862", "GPU860"]


def test_a_log_without_start_or_gpu_is_unknown() -> None:
    assert codes("usb 1-1: new device") == ["GPU939 log"]
    assert codes(START) == ["GPU939 log"]
    assert codes(*HOST) == []


def test_more_signs_than_are_read_are_reported() -> None:
    reset = "vfio-pci 0000:{:02x}:{:02x}.{}: not ready 65535ms after FLR; giving up"
    signs = [reset.format(bus, slot, part) for bus in range(5) for slot in range(32) for part in range(8)]
    _, found = check_log([f"[    1.0] {line}" for line in signs], "log")
    (finding,) = (entry for entry in found if entry.code == "GPU939")
    assert "it has 1024 different signs, and more are not read" in finding.message


def test_modules_of_a_vendor_without_a_card_are_no_sign() -> None:
    """An image lists modules for many cards."""
    absent = "systemd-modules-load[180]: Failed to find module '{}'"
    assert codes(*HOST, absent.format("amdgpu")) == []
    assert codes(*HOST, absent.format("nvidia"), absent.format("amdgpu")) == ["GPU930 log"]
    assert codes(absent.format("amdgpu")) == ["GPU930 log", "GPU939 log"]  # without its start, a log lists no card


def test_a_probe_that_failed_follows_the_drivers_own_message() -> None:
    failed = "NVRM: GPU 0000:88:00.0: RmInitAdapter failed! (0x26:0x56:1463)"
    probe = "nvidia 0000:88:00.0: probe with driver nvidia failed with error -1"
    assert codes(*HOST, probe) == ["GPU854 log 0000:88:00.0"]
    assert codes(*HOST, failed, probe) == ["GPU860 log 0000:88:00.0"]


def test_a_failure_of_programs_follows_the_drivers_failure() -> None:
    hung = "INFO: task nvidia-smi:977823 blocked for more than 120 seconds."
    assert codes(*HOST, hung) == ["GPU943 log"]
    assert codes(*HOST, "NVRM: Xid (PCI:0000:88:00): 119, pid=1, name=x, Timeout waiting for RPC from GSP!", hung) == [
        "GPU913 log 0000:88:00.0"
    ]
    assert codes(*HOST, "cloud-init[9]: Failed to initialize NVML: Driver/library version mismatch") == ["GPU861 log"]


def test_rocm_without_a_gpu_follows_the_failure_of_a_controller() -> None:
    host = [line.replace("10de:20b5", "1002:74a1") for line in HOST]
    absent = "kfd kfd: amdgpu: device 1002:74a1 NOT added due to errors"
    started = "[drm] Initialized amdgpu 3.64.0 for 0000:88:00.0 on minor 1"  # for display, or nothing
    assert codes(*host, absent, started) == ["GPU860 log"]
    failed = "amdgpu 0000:88:00.0: amdgpu: MES failed to respond to msg=ADD_QUEUE"
    assert codes(*host, "amdgpu 0000:88:00.0: amdgpu: Failed to setup smc hw!", absent) == ["GPU935 log 0000:88:00.0"]
    assert codes(*host, failed, absent) == ["GPU932 log 0000:88:00.0", "GPU860 log"]  # a warning is no cause


GPU = "0000:88:00.0"


@pytest.mark.parametrize(
    ("log", "code", "reason"),
    [
        (
            (
                "[drm:psp_hw_init [amdgpu]] *ERROR* PSP firmware loading failed",
                f"amdgpu {GPU}: amdgpu: Fatal error during GPU init",
                f"amdgpu {GPU}: probe with driver amdgpu failed with error -22",
            ),
            "GPU935",
            "PSP firmware loading failed",
        ),
        (
            (
                f"NVRM: GPU {GPU}: RmInitAdapter failed! (0x26:0x56:1463)",
                f"NVRM: GPU {GPU}: rm_init_adapter failed, device minor number 0",
            ),
            "GPU860",
            "(0x26:0x56:1463)",
        ),
        (
            ("NVRM: Can't find an IRQ for your NVIDIA card!", f"nvidia: probe of {GPU} failed with error -1"),
            "GPU860",
            "Can't find an IRQ",
        ),
        (
            (
                f"nvidia {GPU}: not ready 65535ms after resume; giving up",
                f"nvidia {GPU}: Unable to change power state from D3cold to D0, device inaccessible",
            ),
            "GPU769",
            "not ready 65535ms",
        ),
        (
            (
                f"xe {GPU}: [drm] GT0: HuC firmware xe/huc.bin: fetch failed with error -2",
                f"xe {GPU}: [drm] *ERROR* GT0: Failed to initialize uC (-EINVAL)",
            ),
            "GPU935",
            "Failed to initialize uC",  # the error, not the warning before it
        ),
        (
            (
                f"NVRM: Xid (PCI:{GPU[:-2]}): 119, pid=1, name=X, Timeout after 45s of waiting for RPC response",
                f"NVRM: Xid (PCI:{GPU[:-2]}): 79, GPU has fallen off the bus.",
                f"NVRM: Xid (PCI:{GPU[:-2]}): 143, Failed to start GSP",
            ),
            "GPU915",
            "fallen off the bus",
        ),
        (
            (
                f"NVRM: Xid (PCI:{GPU[:-2]}): 109, pid=1, name=X, errorString CTX SWITCH TIMEOUT, Info 0x18c003",
                f"NVRM: Xid (PCI:{GPU[:-2]}): 119, pid=1, name=X, Timeout after 45s of waiting for RPC response",
            ),
            "GPU913",
            "(messages: 2)",
        ),
    ],
)
def test_a_failure_is_one_finding_with_its_first_message(log: tuple[str, ...], code: str, reason: str) -> None:
    _, (found,) = check_log([f"[    1.000000] {line}" for line in (*HOST, *log)], "log")
    assert (found.code, found.place, found.severity) == (code, f"log {GPU}", "error")
    assert reason in found.message


AER = (
    "pcieport 0000:80:03.0: AER: Uncorrectable (Fatal) error message received from 0000:88:00.0",
    f"vfio-pci {GPU}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Requester ID)",
)
DPC = (
    "pcieport 0000:80:03.0: DPC: containment event, status:0x1f01, unmasked uncorrectable error detected",
    "pcieport 0000:80:03.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
)
UNRECOVERED = (
    f"vfio-pci {GPU}: AER: can't recover (no error_detected callback)",
    "pcieport 0000:80:03.0: AER: subordinate device reset failed",
    "pcieport 0000:80:03.0: AER: device recovery failed",
)


def test_a_failed_recovery_follows_its_error() -> None:
    assert codes(*HOST, *AER, *UNRECOVERED) == [f"GPU922 log {GPU}"]
    assert codes(*HOST, *DPC, *UNRECOVERED) == ["GPU925 log 0000:80:03.0"]
    signs, _ = check_log([f"[    1.0] {line}" for line in (*HOST, *AER, *UNRECOVERED)], "log")
    assert {sign.code for sign in signs} == {"GPU922", "GPU926"}


def test_a_failed_recovery_without_its_error_is_a_finding() -> None:
    assert codes(*HOST, *UNRECOVERED) == [f"GPU926 log {GPU}", "GPU926 log 0000:80:03.0"]


def test_an_error_before_a_containment_hides_it_not() -> None:
    assert codes(*HOST, DPC[1], *DPC) == ["GPU925 log 0000:80:03.0"]
    assert codes(*HOST, *AER, *DPC) == [f"GPU922 log {GPU}", "GPU925 log 0000:80:03.0"]


def test_nvidias_firmware_is_needed_only_by_a_gpu_that_does_not_start() -> None:
    """The proprietary driver starts a Turing GPU without its System Processor."""
    missing = f"nvidia {GPU}: Direct firmware load for nvidia/535.183.01/gsp_tu10x.bin failed with error -2"
    failed = "NVRM: GPU 0000:{}:00.0: RmInitAdapter failed! (0x61:0x56:1697)"
    assert codes(*HOST, missing) == []
    assert codes(*HOST, missing, failed.format("88")) == [f"GPU862 log {GPU}"]
    assert codes(*HOST, missing, failed.format("89")) == []  # of another device
    assert codes(*HOST, missing.replace("nvidia 0", "nouveau 0")) == [f"GPU862 log {GPU}"]


def test_a_reason_without_address_is_that_of_no_other_driver() -> None:
    reason = "[drm:amdgpu_get_bios [amdgpu]] *ERROR* Unable to locate a BIOS ROM"
    failure = f"nvidia: probe of {GPU} failed with error -1"
    assert codes(*HOST, reason, failure) == ["GPU860 log", f"GPU854 log {GPU}"]


def test_a_late_transaction_before_a_reset_is_no_failed_one() -> None:
    pending = "timed out waiting for pending transaction; performing function level reset anyway"
    _, (found,) = check_log([f"[    1.000000] {line}" for line in (*HOST, f"vfio-pci {GPU}: {pending}")], "log")
    assert (found.code, found.severity) == ("GPU769", "warning")
    assert "gave up" not in found.message

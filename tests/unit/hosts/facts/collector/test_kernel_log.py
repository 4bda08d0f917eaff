"""The kernel's messages, from a file in another root and from the real device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.kernel_log import MESSAGE_LIMIT, MOST_OF_A_KIND, kernel_log
from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.model import Host
from gpustack.hosts.health.kernel_log import events
from support.sysroot import SysRoot

RESET = "vfio-pci 0000:65:00.0: not ready 65535ms after FLR; giving up"
FAULT = (
    "DMAR: [DMA Read NO_PASID] Request device [65:00.0] fault addr 0x{} [fault reason 0x06] PTE Read access is not set"
)


def log(root: SysRoot, *messages: str) -> list[str] | None:
    text = "".join(f"4,{number},1234,-;{message}\n" for number, message in enumerate(messages))
    root.write("/dev/kmsg", text)
    found = kernel_log(HostRoot(str(root.path)))
    return None if found[0] is None else [message.partition("] ")[2] for message in found[0]]


def test_only_signs_of_failing_devices_are_read(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    assert log(root, "usb 1-1: new device", RESET, " SUBSYSTEM=pci", "eth0: link up") == [RESET]
    kernel = Host.model_validate(collect(str(root.path))).kernel
    assert (kernel.log, kernel.log_dropped) == ((f"[    0.001234] {RESET}",), 0)


def test_messages_of_several_lines_are_signs(tmp_path: Path) -> None:
    """NVIDIA's driver prints one record, whose ends of lines the kernel escapes; the firmware's error has several."""
    record = (
        "Hardware error from APEI Generic Hardware Error Source: 5",
        "event severity: fatal",
        " Error 0, type: fatal",
        "  section_type: PCIe error",
        "  port_type: 4, root port",
        "  device_id: 0000:64:00.0",
    )
    mismatch = (
        "NVRM: API mismatch: the client has the version 550.120, but",
        "NVRM: this kernel module has the version 550.90.07.  Please",
    )
    found = log(
        SysRoot(tmp_path).host(),
        r"\x0a".join(mismatch),
        *(f"{{1}}[Hardware Error]: {line}" for line in record),
    )
    assert [(event.code, event.address) for event in events(found or [])] == [
        ("GPU861", None),
        ("GPU927", "0000:64:00.0"),
    ]


def test_a_flood_of_faults_does_not_hide_a_failed_reset(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    found = log(root, RESET, *(FAULT.format(number) for number in range(10_000)))
    assert found is not None
    assert (len(found), RESET in found, FAULT.format(9999) in found) == (MOST_OF_A_KIND + 1, True, True)
    assert Host.model_validate(collect(str(root.path))).kernel.log_dropped == 10_000 - MOST_OF_A_KIND


def test_one_faulty_device_displaces_no_other(tmp_path: Path) -> None:
    root, other = SysRoot(tmp_path).host(), FAULT.format(1).replace("65:00.0", "66:00.0")
    found = log(root, other, *(FAULT.format(number) for number in range(1000)))
    assert found is not None
    assert other in found


@pytest.mark.parametrize(
    "error", ["NVRM: Xid (PCI:0000:65:00)", "NVRM: Xid (0000:65:00.0)", "nvidia-nvswitch0: SXid (PCI:0000:65:00.0)"]
)
def test_errors_of_a_program_do_not_hide_an_error_of_the_gpu(tmp_path: Path, error: str) -> None:
    """One misaligned access makes almost 200 messages on an H100 (driver 580.159.04): three for each of its 66 TPCs."""
    lost = f"{error}: 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    program = f"{error}: 13, pid=7, name=a, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Misaligned"
    found = log(SysRoot(tmp_path).host(), lost, *[program] * 570)
    assert found == [lost, *[program] * MOST_OF_A_KIND]


@pytest.mark.parametrize(
    ("first", "since"),
    [
        ("6,0,0,-;Linux version 6.12", 0),
        ("6,0,7000000,-;late", 0),
        ("6,71,7000000,-;eth0: up", 7),
        ("not a record", None),
    ],
)
def test_the_kernel_overwrites_its_oldest_messages(tmp_path: Path, first: str, since: int | None) -> None:
    root = SysRoot(tmp_path).host()
    root.write("/dev/kmsg", f"{first}\n")
    assert Host.model_validate(collect(str(root.path))).kernel.log_since == since


def test_messages_are_bounded_and_printable(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    log(root, f"{RESET}\x1b[2J{'x' * 9999}")
    (message,) = Host.model_validate(collect(str(root.path))).kernel.log or ()
    assert (len(message), "\x1b" in message) == (MESSAGE_LIMIT, False)


def test_without_a_log_it_is_unknown(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    document = collect(str(root.path))
    assert (document["kernel"]["log"], document["unread"]) == (None, [])
    root.at("/dev").mkdir(exist_ok=True)
    os.mkfifo(root.at("/dev/kmsg"))
    assert kernel_log(HostRoot(str(root.path))) == (None, None, None)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="this machine does not show its kernel log")
def test_a_log_above_the_limit_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.hosts.facts.collector.kernel_log.TABLE_LIMIT", 1)
    host = HostRoot("/")
    kernel_log(host)
    assert host.unread == [{"path": "/dev/kmsg", "error": "larger than 1 bytes; the rest was not read"}]


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="this machine does not show its kernel log")
def test_the_device_of_this_machine_ends() -> None:
    messages, dropped, since = kernel_log(HostRoot("/"))
    assert (messages is None) == (dropped is None)
    assert since is None or since >= 0

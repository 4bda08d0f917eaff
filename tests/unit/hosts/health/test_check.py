"""The health of the GPUs of recorded hosts with faults. The counters and messages are stand-ins for real failures."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gpustack.base.findings import Code, definitions
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.facts.model import ConfigFile, Host
from gpustack.hosts.health.check import MANY_CORRECTED, Report, check
from gpustack.hosts.health.kernel_log import table
from support.host_samples import snapshot
from support.mediated_hosts import mediated_host, parted
from support.nova_hosts import raw

VGPU_CARD = "0000:84:00.0"
CARD, AUDIO, PORT, OTHER = "0000:88:00.0", "0000:88:00.1", "0000:80:03.0", "0000:84:00.0"
RESET = f"vfio-pci {CARD}: not ready 65535ms after FLR; giving up"
FAULT = "DMAR: [DMA Read NO_PASID] Request device [88:00.1] fault addr 0x1000 [fault reason 0x06]"


def counters(correctable: int = 0, nonfatal: int = 0, fatal: int = 0) -> dict[str, Any]:
    return {"aer": {"correctable": correctable, "nonfatal": nonfatal, "fatal": fatal}}


def host(changes: dict[str, dict[str, Any]] | None = None, *, log: list[str] | None = None, boot: int = 7) -> Host:
    """The recorded host with AER and a kernel log, and with changed functions."""
    facts = raw("k4200-prepared")
    facts["kernel"] |= {"log": log or [], "booted_at": boot}
    for function in facts["pci"]:
        function.update({"responds": True, **counters(), **(changes or {}).get(function["address"], {})})
    return Host.model_validate(facts)


def without(facts: Host, slot: str) -> Host:
    return facts.with_pci(f for f in facts.pci if not f.address.startswith(slot))


def codes(report: Report) -> dict[str, list[str]]:
    """The codes by address of the GPU; those that concern none below the host."""
    found = {health.gpu.main.address: [f.code.value for f in health.findings] for health in report.gpus}
    others: dict[str, list[str]] = {}
    for entry in report.others:
        others.setdefault(entry.place.removeprefix("gpu01 "), []).append(entry.code.value)
    return {address: entries for address, entries in {**found, **others}.items() if entries}


FIRMWARE = f"nvidia {CARD}: Direct firmware load for nvidia/550.90.07/gsp_tu10x.bin failed with error -2"
LOST = f"NVRM: Xid (PCI:{CARD[:-2]}): 79, pid=0, GPU has fallen off the bus."
FAILED = f"NVRM: GPU {CARD}: RmInitAdapter failed! (0x61:0x56:1697)"


def test_a_sound_host_has_no_findings() -> None:
    report = check(host(), host())
    assert (codes(report), len(report.gpus)) == ({}, 2)


@pytest.mark.parametrize(
    ("changes", "log", "expected"),
    [
        ({CARD: {"responds": False, "power_state": "D0"}}, [], ["GPU027"]),
        ({AUDIO: {"responds": False}}, [], ["GPU027"]),
        ({CARD: {"responds": False, "power_state": "D3cold"}}, [], []),  # asleep
        ({CARD: counters(fatal=1)}, [], ["GPU767"]),
        ({CARD: counters(nonfatal=1)}, [], ["GPU767"]),
        ({PORT: counters(fatal=1)}, [], ["GPU767"]),  # a card's errors may count at the port above it
        ({CARD: counters(correctable=MANY_CORRECTED)}, [], []),
        ({CARD: counters(correctable=MANY_CORRECTED + 1)}, [], ["GPU768"]),
        ({CARD: {"reset_methods": []}}, [], ["GPU018"]),
        ({}, [RESET], ["GPU769"]),
        ({}, [f"vfio-pci {CARD}: Unable to change power state from D3cold to D0, device inaccessible"], ["GPU770"]),
        ({}, [FAULT, FAULT], ["GPU771"]),
        ({}, ["vfio-pci 0000:01:00.0: not ready 65535ms after FLR; giving up"], []),  # a network card
        ({}, [f"nouveau {CARD}: NVIDIA GK104 (0e4020a2)"], []),  # vfio-pci is bound now
        ({CARD: {"driver": "nouveau"}}, [f"nouveau {CARD}: NVIDIA GK104 (0e4020a2)"], ["GPU848"]),
        ({}, [f"nouveau {CARD}: probe with driver nouveau failed with error -2"], []),
        ({CARD: {"driver": "nvidia"}}, [FIRMWARE], []),
        ({CARD: {"driver": "nvidia"}}, [FIRMWARE, FAILED], ["GPU862"]),
        ({CARD: {"driver": "nvidia"}}, [LOST, FAILED], ["GPU915"]),  # one cause, one remedy
        ({CARD: {"driver": "nvidia"}}, [FAILED], ["GPU860"]),
        ({CARD: {"driver": None}}, [f"vfio-pci {CARD}: probe with driver vfio-pci failed with error -22"], ["GPU854"]),
        ({}, [f"pci {CARD}: BAR 1: no space for [mem size 0x10000000 64bit pref]"], []),  # it has an address now
    ],
)
def test_signs_of_one_card(changes: dict[str, dict[str, Any]], log: list[str], expected: list[str]) -> None:
    assert codes(check(host(changes, log=log))) == ({CARD: expected} if expected else {})


@pytest.mark.parametrize("code", sorted(table().codes - {"GPU849", "GPU936"}))  # BARs of guests; licences
def test_remedies_of_messages_name_the_host_if_they_name_the_guest(code: str) -> None:
    definition = definitions()[Code(code)]
    remedy, about = definition.remedy.lower(), (definition.title + definition.message).lower()
    assert "guest" not in about
    assert not re.search(r"\b(guest|image)\b", remedy) or re.search(r"\bhost\b", remedy)


def test_a_bar_of_an_nvswitch_without_an_address_concerns_the_host() -> None:
    facts = snapshot("nvswitch")
    facts["kernel"]["log"] = ["[    1.0] pci 0000:c4:00.0: BAR 0: no space for [mem size 0x02000000 64bit]"]
    (entry, _) = check(Host.model_validate(facts)).others
    assert (entry.code.value, entry.message) == (
        "GPU021",
        definitions()[Code.BAR_UNASSIGNED].message.format(bars="BAR 0"),
    )


def test_an_error_of_an_nvswitch_concerns_the_host() -> None:
    facts = snapshot("nvswitch")
    facts["kernel"]["log"] = [
        "[    1.0] nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    ]
    (entry, _) = check(Host.model_validate(facts)).others
    assert (entry.code.value, entry.severity.value, entry.place) == ("GPU920", "error", "gpu-nv01 0000:c4:00.0")


@pytest.mark.parametrize(("driver", "expected"), [("vfio-pci", []), ("nouveau", ["GPU848"])])
def test_the_driver_that_keeps_nvidias_off_is_nouveau_only_if_it_is_bound(driver: str, expected: list[str]) -> None:
    """On a host that uses one of its cards itself, NVIDIA's driver does not get those of vfio-pci, and logs it."""
    log = ["[    7.1] NVRM: The NVIDIA probe routine was not called for 1 device(s)."]
    report = check(host({CARD: {"driver": driver}}, log=log))
    assert [entry.code.value for entry in report.others] == expected
    assert [event.code for event in report.signs] == expected


@pytest.mark.parametrize(("module", "expected"), [("nvidia", ["GPU930"]), ("amdgpu", [])])
def test_modules_of_a_vendor_without_a_card_are_no_sign(module: str, expected: list[str]) -> None:
    log = [f"[    4.1] modprobe: FATAL: Module {module} not found in directory /lib/modules/6.1.0-50-amd64"]
    assert [entry.code.value for entry in check(host(log=log)).others] == expected


def test_an_error_of_a_gpu_that_is_gone_concerns_the_host() -> None:
    log = [f"NVRM: Xid (PCI:{CARD[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", RESET]
    assert codes(check(without(host(log=log), CARD[:-2]))) == {CARD: ["GPU915", "GPU769"]}


def test_a_real_h100_after_faults_of_programs() -> None:
    """Recorded in a virtual machine (driver 580.159.04) after misaligned, unmapped and trapping accesses of programs:
    576 messages, of which the collector keeps the newest of each number. Names and serial numbers are replaced.
    """
    facts = Host.model_validate(snapshot("h100-guest"))
    report = check(facts)
    (health,) = report.gpus
    found = {sign.sign: (sign.count, sign.severity) for sign in health.signs}
    assert found == {"xid-13": (64, "info"), "xid-31": (2, "info"), "xid-43": (4, "info")}
    assert {entry.code.value for entry in health.findings} == {"GPU912", "GPU919"}
    assert (facts.kernel.nvidia_driver, facts.kernel.log_dropped, health.gpu.main.driver) == (
        "580.159.04",
        507,
        "nvidia",
    )
    left_out = [entry.message for entry in report.others if entry.code.value == "GPU939"]
    assert left_out == ["the facts lack 507 older messages of the same devices and kinds"]
    fewer = facts.model_copy(update={"kernel": facts.kernel.model_copy(update={"log_dropped": 506})})
    assert [codes(check(facts, known)).get("gpu-guest", []) for known in (facts, fewer)] == [[], ["GPU939"]]


def test_a_lost_lane_is_a_sign_and_a_low_speed_is_none() -> None:
    full = {"speed": "8.0 GT/s PCIe", "width": 16, "max_speed": "8.0 GT/s PCIe", "max_width": 16}
    idle = {CARD: {"link": {**full, "speed": "2.5 GT/s PCIe"}}, PORT: {"link": full}}
    assert codes(check(host(idle))) == {}
    narrow = {CARD: {"link": {**full, "width": 8}}, PORT: {"link": full}}
    assert codes(check(host(narrow))) == {CARD: ["GPU720"]}


def test_only_what_is_new_since_the_baseline_counts() -> None:
    old = host({CARD: counters(fatal=2), PORT: counters(correctable=500)}, log=[RESET, FAULT])
    assert codes(check(old, old)) == {}
    new = host({CARD: counters(fatal=3), PORT: counters(correctable=501)}, log=[RESET, FAULT, RESET])
    report = check(new, old)
    assert codes(report) == {CARD: ["GPU767", "GPU769"]}
    (health,) = (health for health in report.gpus if health.gpu.main.address == CARD)
    assert health.errors is not None
    assert (health.errors.fatal, health.errors.correctable) == (1, 1)
    assert "1 fatal at 0000:88:00.0" in health.findings[0].message


def test_a_reboot_starts_the_counters_again() -> None:
    before = host({CARD: counters(fatal=2)}, log=[RESET], boot=7)
    after = host({CARD: counters(fatal=2)}, log=[RESET], boot=8)
    assert codes(check(after, before)) == {CARD: ["GPU767", "GPU769"]}


def test_a_counter_that_began_again_is_no_negative_number() -> None:
    before, after = host({CARD: counters(fatal=5)}), host({CARD: counters(fatal=1)})
    assert codes(check(after, before)) == {CARD: ["GPU767"]}


def test_missing_and_new_cards() -> None:
    assert codes(check(without(host(), "0000:88:00"), host())) == {CARD: ["GPU765"]}
    assert codes(check(host(), without(host(), "0000:88:00"))) == {CARD: ["GPU766"]}
    replaced = host({OTHER: {"product": "13f2"}})
    assert codes(check(replaced, host())) == {OTHER: ["GPU766"]}  # the remedy of GPU765 would disable it


def test_unknown_facts_are_reported() -> None:
    facts = host()
    blind = facts.model_copy(update={"kernel": facts.kernel.model_copy(update={"log": None})})
    blind = blind.with_pci(f.model_copy(update={"aer": None, "responds": None}) for f in facts.pci)
    report = check(blind)
    (entry,) = report.others
    assert entry.code.value == "GPU772"
    assert {health.without_findings for health in report.gpus} == {"unknown"}
    assert {health.without_findings for health in check(host()).gpus} == {"ok"}
    assert "the kernel log, AER counters, whether each GPU answers" in entry.message


@pytest.fixture
def _tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another time zone than that of the facts."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("since", "read", "found"),
    [(None, None, False), (0, None, False), (3600, None, True), (3600, 3606, True), (3600, 3607, False)],
)
@pytest.mark.usefixtures("_tokyo")
def test_overwritten_messages_are_reported(since: int | None, read: int | None, found: bool) -> None:
    """The host booted at second 7; a baseline that was read in time has the messages, in any time zone."""
    facts, baseline = host(), None
    facts = facts.model_copy(update={"kernel": facts.kernel.model_copy(update={"log_since": since})})
    if read is not None:
        read_at = datetime.fromtimestamp(read, UTC).isoformat()
        baseline = host().model_copy(update={"collected_at": read_at})
    assert codes(check(facts, baseline)) == ({"gpu01": ["GPU939"]} if found else {})
    assert codes(check(facts, host(boot=8))).get("gpu01", []) == (["GPU939"] if since else [])


WANTED = f"{VGPU_CARD} wants 10de 25b6 2 A16-8Q -\n"
SECOND = f"{VGPU_CARD} wants 10de 25b6 1 A16-4Q - 1 mixed\n"


@pytest.mark.parametrize(
    ("types", "record", "reason"),
    [
        (["711", "711"], WANTED, None),
        (["711", None], "", None),  # no vGPUs of gpustack
        (["711", None], WANTED, "virtual functions with the type: 1 of 2"),
        (["711", "711"], f"{WANTED}{VGPU_CARD} is skipped: it has no driver\n{WANTED}", None),  # a later start
        ([None, None], f"{WANTED}{VGPU_CARD} is skipped: its MIG mode is off\n", "its MIG mode is off"),
        (["711", "711"], WANTED.replace("A16-8Q", "A16-2Q"), "the driver does not support the type A16-2Q"),
        (
            ["711", None],
            WANTED.replace(" 2 ", " 1 ").replace("-\n", "- 0 mixed\n") + SECOND,
            "vGPU type A16-4Q: virtual functions with the type: 0 of 1",
        ),
        (["mdev", "mdev"], WANTED, None),
        ([], WANTED, "virtual functions with the type: 0 of 2"),
    ],
)
def test_a_card_without_the_vgpus_of_its_boot_is_a_sign(
    types: list[str | None], record: str, reason: str | None
) -> None:
    mdev = types == ["mdev", "mdev"]
    functions = parted(VGPU_CARD, len(types), mdev=mdev)
    for function, kind in zip(functions[1:], types, strict=True):
        function["vgpu_type"] = None if mdev else kind
    facts = mediated_host(*functions)
    facts = facts.model_copy(update={"files": {RECORD: ConfigFile(text=record)}} if record else {})
    (health,) = check(facts).gpus
    found = [entry.message for entry in health.findings if entry.code.value == "GPU902"]
    assert [reason in message for message in found] == ([True] if reason else []), found

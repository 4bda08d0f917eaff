"""Console logs of guests: real messages, in logs that are cut, coloured and interleaved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.findings import errors
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check
from gpustack.offer.guest.inside import console, report

DATA = yaml.load((Path(__file__).parent / "consoles.yaml").read_text(), yaml.CSafeLoader)
CASES = DATA["cases"]


def findings(log: str | bytes, promised: check.Promise | None = None) -> list[str]:
    facts = console.facts(log, check.consoles(), table())
    return [f"{entry.code} {entry.place.removeprefix('vm ')}" for entry in check.findings(facts, promised, "vm")]


@pytest.mark.parametrize("name", CASES)
def test_findings_of_a_console_log(name: str) -> None:
    case = CASES[name]
    log = case["boot"] + case["log"]
    assert findings(log) == case["findings"]
    facts = console.facts(log, check.consoles(), table())
    listed = list(check.findings(facts, None, "vm"))
    assert case.get("contains", "") in " ".join(entry.message for entry in listed)
    assert {entry.severity.value for entry in listed} >= ({case["severity"]} if "severity" in case else set())
    assert case.get("severity") != "warning" or not errors(listed)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("damage", ["crlf", "bytes", "interleaved"])
def test_damage_changes_no_finding(name: str, damage: str) -> None:
    case = CASES[name]
    log = case["boot"] + case["log"]
    damaged = {
        "crlf": log.replace("\n", "\r\r\n").encode(),
        "bytes": b"\xff\xfe\x80" + log.replace("\n", "\n\x1b[0m").encode() + b"\xc3",
        "interleaved": log.replace("\n", "\n[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mcron\x1b[0m.\n").encode(),
    }[damage]
    assert findings(damaged) == case["findings"]


def test_cut_logs_never_fail() -> None:
    log = "".join(case["boot"] + case["log"] for case in CASES.values()).encode()
    for cut in range(0, len(log), 97):
        findings(log[cut : cut + 4000])


def test_a_log_that_starts_after_the_boot_is_unknown() -> None:
    log = CASES["no-gsp"]["boot"].splitlines()[-1] + "\n"
    assert findings(log) == ["GPU859 console"]


def test_other_gpus_than_promised() -> None:
    log = DATA["boot"]
    assert "GPU845 PCI" in findings(log, check.Promise(count=2))
    assert "GPU846 PCI" in findings(log, check.Promise(count=1, ids=("10de:20b5",)))
    assert findings(log, check.Promise(count=1, ids=("10de:1db4",))) == ["GPU859 console"]


def test_virtual_displays_are_no_gpus() -> None:
    ids = ["1234:1111", "1af4:1050", "1013:00b8", "1b36:0100", "15ad:0405"]
    functions = "".join(
        f"[    0.4] pci 0000:00:0{n}.0: [{text}] type 00 class 0x03{kind}\n"
        for n, (text, kind) in enumerate((text, kind) for text in ids for kind in ("0000", "8000"))
    )
    log = f"[    0.0] Linux version 6.12.1 (a)\n{functions}"
    assert console.facts(log, check.consoles(), table())["gpus"] == []


def test_every_class_of_gpus_counts() -> None:
    classes = ["030000", "030200", "038000", "120000"]
    functions = "".join(
        f"[    0.4] pci 0000:0{n}:00.0: [1002:740f] type 00 class 0x{text}\n[    0.4] pci 0000:0{n}:00.1: [1002:ab38]"
        " type 00 class 0x040300\n"
        for n, text in enumerate(classes)
    )
    log = f"[    0.0] Linux version 6.12.1 (a)\n{functions}"
    assert len(console.facts(log, check.consoles(), table())["gpus"]) == len(classes)


BOOT = "[    0.0] Linux version 6.12.1 (a)\n"
FUNCTIONS = "[    0.4] pci 0000:00:05.0: [10de:20b5] type 00 class 0x030200\n"
REPORTED: dict[str, Any] = {
    "address": "0000:00:06.0",
    "vendor": "10de",
    "product": "20b5",
    "class": "030200",
    "driver": None,
    "modules": ["nvidia"],
    "unplaced": [],
}


def facts_of(log: str) -> dict[str, Any]:
    return console.facts(log, check.consoles(), table())


def a_report(**more: Any) -> str:
    known = {"gpus": [REPORTED], "events": [], "complete": False, "kernel": "5.10", "drm": False, "flavor": "g"}
    return report.line({**known, "driver_version": "580.9", **more}, "1 GPU") + "\n"


def test_a_report_has_more_than_the_log() -> None:
    facts = facts_of(BOOT + FUNCTIONS + a_report())
    assert [gpu["address"] for gpu in facts["gpus"]] == ["0000:00:06.0"]
    assert (facts["kernel"], facts["complete"], facts["drm"], facts["flavor"]) == ("6.12.1", True, False, "g")
    assert (facts["driver_version"], facts["problem"]) == ("580.9", None)


def test_a_report_alone_is_enough() -> None:
    facts = facts_of(a_report(complete=True))
    assert ([gpu["address"] for gpu in facts["gpus"]], facts["kernel"], facts["complete"]) == (
        ["0000:00:06.0"],
        "5.10",
        True,
    )
    assert facts_of(a_report())["complete"] is False


def test_a_log_without_functions_has_unknown_gpus() -> None:
    assert facts_of(BOOT)["gpus"] is None
    assert facts_of(FUNCTIONS)["gpus"] is None  # its boot is not in the log
    assert [gpu["address"] for gpu in facts_of(BOOT + FUNCTIONS)["gpus"]] == ["0000:00:05.0"]
    (other,) = [facts_of(BOOT + FUNCTIONS.replace("10de:20b5", "1234:1111"))["gpus"]]
    assert other == []


FAILED = "[    5.3] nvidia: probe of 0000:00:05.0 failed with error -1\n"
NOUVEAU = "[    5.3] nouveau 0000:00:05.0: NVIDIA GA100 (170000a1)\n"
DISPLAY = "[    5.3] nouveau: probe of 0000:00:05.0 failed with error -2\n"
BOUND = "[    6.1] [drm] Initialized nvidia-drm 0.0.0 for 0000:00:05.0 on minor 1\n"


@pytest.mark.parametrize(
    ("log", "driver"),
    [
        ("", None),
        (FAILED, ""),
        (NOUVEAU, "nouveau"),
        (FAILED + NOUVEAU, "nouveau"),
        (DISPLAY, None),
        (BOUND, "nvidia"),
        (BOUND.replace("nvidia-drm", "amdgpu"), "amdgpu"),
        (FAILED + BOUND, "nvidia"),
        (NOUVEAU + BOUND, "nvidia"),
    ],
)
def test_the_bound_driver_by_its_messages(log: str, driver: str | None) -> None:
    assert [gpu["driver"] for gpu in facts_of(BOOT + FUNCTIONS + log)["gpus"]] == [driver]


def test_messages_that_a_report_repeats_are_listed_once() -> None:
    log = BOOT + FUNCTIONS + FAILED
    events = facts_of(log)["events"]
    other = {**events[0], "address": "0000:00:06.0"}
    merged = facts_of(log + a_report(events=[*events, other]))["events"]
    assert merged == [*events, other]

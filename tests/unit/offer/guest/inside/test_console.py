"""Console logs of guests: real messages, in logs that are cut, coloured and interleaved."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check
from gpustack.offer.guest.inside import console

DATA = yaml.safe_load((Path(__file__).parent / "consoles.yaml").read_text())
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
    texts = " ".join(entry.message for entry in check.findings(facts, None, "vm"))
    assert case.get("contains", "") in texts


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

"""Plans and verifications as people read them, and as programs do: golden files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.show import show_plan, show_verification
from gpustack.spec.load import parse_spec
from support.boot_simulation import Machine
from support.host_cases import load
from support.host_samples import changed, snapshot

HERE = Path(__file__).parent
PLANS = (
    "first-run",
    "prepared",
    "shared-card",
    "shared-group",
    "nvswitch-full",
    "nvswitch-without-mode",
    "option-withdrawn",
)


def golden(name: str, text: str) -> None:
    """Compare with a golden file; ``GPUSTACK_GOLDEN=write`` writes it instead (look at the diff)."""
    path = HERE / "golden" / name
    if os.environ.get("GPUSTACK_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_plan_as_text(name: str) -> None:
    _, spec, machine = load(HERE / "cases" / f"{name}.yaml")
    golden(f"plan-{name}.txt", show_plan(plan_host(spec, machine.host), diffs=True) + "\n")


@pytest.mark.parametrize("name", ["first-run", "shared-group"])
def test_plan_as_json(name: str) -> None:
    _, spec, machine = load(HERE / "cases" / f"{name}.yaml")
    golden(f"plan-{name}.json", json.dumps(plan_host(spec, machine.host).to_dict(), indent=2) + "\n")


def test_verification_as_text_and_json() -> None:
    _, spec, machine = load(HERE / "cases" / "prepared.yaml")
    verification = verify_host(spec, machine.host, machine.images)
    golden("verification.txt", show_verification(verification) + "\n")
    golden("verification.json", json.dumps(verification.to_dict(), indent=2) + "\n")


def test_a_failed_verification_as_text() -> None:
    _, spec, machine = load(HERE / "cases" / "first-run.yaml")
    golden("verification-failed.txt", show_verification(verify_host(spec, machine.host, None)) + "\n")


def test_a_host_can_t_move_the_cursor_of_who_reads_its_plan() -> None:
    raw = changed(snapshot("k4200"), {"files": {"/etc/rc.local": "echo 0000:88:00.0 >/x \x1b[2J\u202e\n"}})
    spec = parse_spec(
        yaml.safe_dump(
            {
                "version": 1,
                "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}},
                "hosts": {"gpu01": ["k4200"]},
            }
        ),
        "test",
    )
    text = show_plan(plan_host(spec, Machine(raw).host))
    assert "echo 0000:88:00.0 >/x \\x1b[2J\\u202e" in text


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/default/grub", 'GRUB_CMDLINE_LINUX="intel_iommu=off,\\"x\nERROR GPU999\\""\n'),
        ("/etc/default/grub", 'GRUB_DEFAULT="a\nERROR GPU999"\n'),
        ("/etc/driverctl.d/0000:84:00.0", "nouveau\nERROR GPU999\n"),
    ],
)
def test_no_line_of_a_plan_begins_in_a_hosts_value(path: str, text: str, *, adopt: bool) -> None:
    _, spec, _ = load(HERE / "cases" / "first-run.yaml")
    raw = snapshot("k4200")
    raw["files"][path] = {**raw["files"]["/etc/default/grub"], "text": text}
    plan = plan_host(spec, Machine(raw).host, adopt=adopt)
    shown = show_plan(plan, diffs=False)
    assert "\\nERROR GPU999" in shown
    assert [line for line in shown.splitlines() if line.strip().startswith("ERROR GPU999")] == []
    assert [f for f in plan.findings if "\n" in f"{f.place}{f.message}{f.remedy}"] == []

"""Hosts that somebody has set up by hand, and the findings of their plans."""

from __future__ import annotations

from gpustack.prepare.host.plan import HostPlan
from gpustack.spec.load import parse_spec
from gpustack_demo.examples.handmade import hand_made_host
from support.boot_simulation import Machine
from support.host_samples import changed, snapshot

FIRST_CARD = parse_spec(
    "version: 1\nmodels:\n"
    '  k4200: {match: {vendor: "10de", product: "11b4", addresses: ["0000:84:00.0"]}}\nhosts: {gpu01: [k4200]}\n',
    "test",
)
GRUB = "/etc/default/grub"


def machine(files: dict[str, str]) -> Machine:
    raw = changed(snapshot("k4200"), {"files": files})
    if "/etc/rc.local" in files:
        raw["files"]["/etc/rc.local"]["mode"] = "0755"
    return Machine(raw)


def hand_made() -> Machine:
    return machine(dict(hand_made_host().files))


def codes(plan: HostPlan) -> set[str]:
    return {f.code for f in plan.findings}


def messages(plan: HostPlan, code: str) -> dict[str, list[str]]:
    by_place: dict[str, list[str]] = {}
    for f in plan.findings:
        if f.code == code:
            by_place.setdefault(f.place.partition(" ")[2], []).append(f.message)
    return by_place

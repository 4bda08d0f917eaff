"""Binding on the running host: what can be, and what can't, and why."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpustack.base.operations import BindLive, Reboot, WriteFile
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.show import show_plan
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_samples import changed, snapshot

FIRST, SECOND = "0000:84:00.0", "0000:88:00.0"
LIVE = ("GPU180", "GPU181", "GPU182", "GPU230", "GPU231", "GPU232")


def spec(*addresses: str, driver: str = "vfio-pci", options: str = "{}") -> Spec:
    chosen = ", ".join(f'"{address}"' for address in addresses)
    return parse_spec(
        f'version: 1\nmodels:\n  k4200: {{match: {{vendor: "10de", product: "11b4", addresses: [{chosen}]}}, '
        f"driver: {driver}}}\nhosts: {{gpu01: [k4200]}}\noptions: {options}\n",
        "test",
    )


def running(holders: dict[str, list[str] | None] | None = None, **changes: Any) -> Host:
    """A host with the first card prepared and rebooted; nothing uses the second unless told otherwise."""
    machine = Machine(snapshot("k4200"))
    machine.carry_out(plan_host(spec(FIRST), machine.host))
    raw = changed(copy.deepcopy(machine.raw), changes)
    for entry in raw["pci"]:
        is_second = entry["address"].startswith("0000:88:00")
        entry["holders"] = (holders or {}).get(entry["address"], []) if is_second else None
    return parse_host(raw, "test")


def live(host: Host, chosen: Spec | None = None) -> HostPlan:
    return plan_host(chosen or spec(FIRST, SECOND), host, live=True)


def bound(plan: HostPlan) -> list[str]:
    return [f.address for op in plan.operations if isinstance(op, BindLive) for f in op.functions]


def live_findings(plan: HostPlan) -> dict[str, str]:
    return {f.code: f.message for f in plan.findings if f.code in LIVE}


def test_a_card_that_nothing_uses_is_bound_without_a_reboot_after_its_files() -> None:
    plan = live(running())
    assert bound(plan) == ["0000:88:00.1", SECOND]
    assert plan.reboot == ()
    kinds = [type(operation) for operation in plan.operations]
    assert kinds.index(BindLive) > max(n for n, kind in enumerate(kinds) if kind is WriteFile)
    assert Reboot not in kinds
    assert live_findings(plan) == {}
    [op] = [op for op in plan.operations if isinstance(op, BindLive)]
    assert [(f.before, f.vendor, f.product, f.pci_class) for f in op.functions] == [
        ("snd_hda_intel", "10de", "0e0a", "040300"),
        ("nouveau", "10de", "11b4", "030000"),
    ]
    text = show_plan(plan)
    assert "1 card" in text
    assert "bind 0000:88:00.1, 0000:88:00.0 to vfio-pci on the running host" in text
    assert plan.to_dict()["operations"][-1]["kind"] == "bind_live"


def test_without_being_asked_the_plan_is_a_reboot() -> None:
    plan = plan_host(spec(FIRST, SECOND), running())
    assert bound(plan) == []
    assert isinstance(plan.operations[-1], Reboot)


def test_a_card_in_use_is_named_and_left_to_a_reboot() -> None:
    plan = live(running({SECOND: ["process Xorg (812) has /dev/dri/card1 open"]}))
    assert bound(plan) == []
    assert "process Xorg (812) has /dev/dri/card1 open" in live_findings(plan)["GPU181"]
    assert plan.reboot == (
        "0000:88:00.0 is on nouveau instead of vfio-pci",
        "0000:88:00.1 is on snd_hda_intel instead of vfio-pci",
    )


def test_one_function_in_use_leaves_the_whole_card() -> None:
    plan = live(running({"0000:88:00.1": ["sound card1 is playing or recording"]}))
    assert bound(plan) == []
    assert "playing" in live_findings(plan)["GPU181"]


def test_one_card_in_use_does_not_keep_the_other() -> None:
    machine = Machine(snapshot("k4200"))
    machine.carry_out(plan_host(spec(FIRST, options="{blacklist_host_drivers: false}"), machine.host))
    raw = copy.deepcopy(machine.raw)
    for entry in raw["pci"]:
        if entry["address"].startswith("0000:84:00"):
            entry.update(driver=entry["modules"][0], driver_override=None)
        in_use = entry["address"] == FIRST
        entry["holders"] = ["process Xorg (1) has /dev/dri/card0 open"] if in_use else []
    plan = live(parse_host(raw, "test"))
    assert bound(plan) == ["0000:88:00.1", SECOND]
    assert plan.reboot == (
        "0000:84:00.0 is on nouveau instead of vfio-pci",
        "0000:84:00.1 is on snd_hda_intel instead of vfio-pci",
    )


def test_what_is_not_known_is_not_taken_for_free() -> None:
    plan = live(running({SECOND: None}))
    assert bound(plan) == []
    assert "nouveau" in live_findings(plan)["GPU182"]


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({"set": {"kernel.command_line": "quiet iommu=pt"}}, "GPU180", "started without intel_iommu=on"),
        ({"set": {"kernel.command_line": "intel_iommu=on iommu=pt pci-stub.ids=1:2"}}, "GPU180", "no longer wanted"),
        ({"set": {"kernel.command_line": None}}, "GPU180", "are unknown"),
        ({"set": {"iommu.units": []}}, "GPU230", "the IOMMU is inactive"),
        ({"set": {"iommu.interrupt_remapping": None}}, "GPU230", "interrupts are not remapped"),
        ({"set": {"kernel.release": "9.9.9"}}, "GPU231", "has no vfio-pci to load"),
        ({"pci": {SECOND: {"claims": ["BOOTFB"]}}}, "GPU181", "BOOTFB draws on it"),
    ],
)
def test_the_running_host_must_be_right_but_for_the_drivers(changes: dict[str, Any], code: str, why: str) -> None:
    plan = live(running(**changes))
    if plan.refused:  # it is refused for that reason already
        assert "set" in changes
        return
    assert bound(plan) == []
    assert why in live_findings(plan)[code]
    assert plan.reboot != ()


def test_enabled_virtual_functions_refuse_the_plan() -> None:
    plan = live(running(pci={SECOND: {"sriov_numvfs": 2, "sriov_totalvfs": 4}}))
    assert plan.refused
    assert "GPU017" in {finding.code for finding in plan.findings}


def test_a_card_without_a_driver_is_free() -> None:
    changes = {"pci": {address: {"driver": None} for address in (SECOND, "0000:88:00.1")}}
    plan = live(running({SECOND: None, "0000:88:00.1": None}, **changes))
    assert bound(plan) == ["0000:88:00.1", SECOND]


def variant_host(*cards: str) -> Host:
    """A host that was prepared for both cards, whose kernels have a VFIO variant driver for the given ones.

    After the boot nouveau got the second card, and nothing uses either.
    """
    alias = "vfio_pci:v000010DEd000011B4sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci"
    releases = ("6.1.0-37-amd64", "6.1.0-35-amd64")
    modalias = "pci:v000010DEd000011B4sv000010DEsd00001096bc03sc00i00"
    changes = {
        "pci": {address: {"modalias": modalias if address in cards else None} for address in (FIRST, SECOND)},
        "kernels": {release: {"nvgrace_gpu_vfio_pci": "module"} for release in releases},
        "vfio_aliases": {release: [alias] for release in releases},
    }
    machine = Machine(changed(snapshot("k4200"), changes))
    machine.carry_out(plan_host(spec(FIRST, SECOND), machine.host))
    for entry in machine.raw["pci"]:
        entry["holders"] = []
        if entry["address"] == SECOND:
            entry.update(driver="nouveau", driver_override=None)
    return machine.host


def test_a_card_on_its_variant_driver_is_left_alone() -> None:
    host = variant_host(FIRST)
    assert host.functions[FIRST].driver == "nvgrace_gpu_vfio_pci"
    assert bound(live(host)) == [SECOND]


def test_variant_drivers_are_left_to_the_boot() -> None:
    plan = live(variant_host(FIRST, SECOND))
    assert bound(plan) == []
    assert plan.reboot == (f"{SECOND} is on nouveau instead of nvgrace_gpu_vfio_pci",)
    assert "bound at boot only" in live_findings(plan)["GPU232"]


def test_a_refused_plan_binds_nothing() -> None:
    raw = running().model_dump(by_alias=True, mode="json")
    raw["files"]["/etc/modprobe.d/vfio.conf"] = {"text": "options vfio-pci ids=10de:11b4\n", "mode": "0644"}
    plan = live(parse_host(raw, "test"))
    assert plan.refused
    assert plan.operations == ()


def test_virtual_functions_wait_for_the_boot_and_the_plan_reports_it() -> None:
    text = """\
version: 1
models:
  whole: {match: {vendor: "10de", product: "11b4", addresses: ["0000:84:00.0"]}}
  quarter: {match: {vendor: "10de", product: "11b4", addresses: ["0000:88:00.0"]}, vfs: 4}
hosts: {gpu01: [whole, quarter]}
"""
    plan = live(running(pci={SECOND: {"sriov_totalvfs": 8, "sriov_numvfs": 0}}), parse_spec(text, "test"))
    messages = {f.code: f.message for f in plan.findings}
    assert messages["GPU896"] == f"not created on the running host: {SECOND} has 0 virtual functions instead of 4"
    assert (plan.refused, plan.reboot) == (False, (f"{SECOND} has 0 virtual functions instead of 4",))

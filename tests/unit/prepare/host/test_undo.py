"""Undo: a prepared host is given back, byte for byte, whatever happens on the way."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustack.base.operations import Reboot, RunCommand
from gpustack.prepare.host.own_files import (
    AGAIN,
    GRUB,
    HOOK,
    JOURNAL,
    MODPROBE,
    MODULES_LOAD,
    RECORD,
    SCRIPT,
    VFS,
    is_untouched,
)
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.prove.undone import verify_undone
from gpustack.prepare.host.record import KERNEL_CMDLINE
from gpustack.prepare.host.render import render_record
from gpustack.prepare.host.undo import plan_undo
from support.boot_simulation import Machine
from support.host_cases import load
from support.host_samples import changed, snapshot

CASES = Path(__file__).parent / "cases"
PREPARED = (
    "prepared",
    "identical-prepared",
    "pci-stub",
    "vfio-built-in",
    "amd-nothing-to-add",
    "nvswitch-full",
    "dracut-by-id",
    "variant",
    "rhel-9",
    "rhel-8",
    "dracut-by-address",
    "systemd-boot",
    "systemd-boot-cmdline",
    "systemd-boot-fedora",
    "shared-card-beside-another",
    "network-card",
)

GRUB_WITH_IOMMU = 'GRUB_CMDLINE_LINUX="intel_iommu=on iommu=pt"\n'


def prepared(case: str) -> tuple[Machine, Machine]:
    """A host before it was prepared, and after."""
    data, spec, _ = load(CASES / f"{case}.yaml")
    before = Machine(load_raw(data))
    if before.host.boot.loader == "grub":
        before.do(RunCommand(argv=("update-grub",), why="its menu is that of its defaults"))
    after = Machine(before.raw)
    after.carry_out(plan_host(spec, after.host))
    return before, after


def load_raw(case: dict[str, Any]) -> dict[str, Any]:
    return changed(snapshot(case["host"]), case.get("changes", {}))


def texts(machine: Machine) -> dict[str, tuple[str, str]]:
    """Every configuration file: its text and mode."""
    files = machine.raw["files"].items()
    return {path: (file["text"], file["mode"]) for path, file in files if not path.startswith("/run/")}


def arguments(machine: Machine) -> list[list[str]]:
    return [entry["arguments"].split() for entry in machine.raw["boot"]["entries"]]


def described(plan: HostPlan) -> list[str]:
    return [operation.describe() for operation in plan.operations]


def test_what_remembers_a_boot_goes_too() -> None:
    _, spec, machine = load(CASES / "booted-and-not-right.yaml")
    machine.carry_out(plan_host(spec, machine.host))
    assert AGAIN in machine.host.files
    assert plan_host(spec, machine.host).operations == ()
    machine.carry_out(plan_undo(machine.host))
    assert AGAIN not in machine.host.files
    assert plan_undo(machine.host).operations == ()


@pytest.mark.parametrize("case", PREPARED)
def test_a_prepared_host_is_given_back(case: str) -> None:
    before, machine = prepared(case)
    assert texts(machine) != texts(before)
    plan = plan_undo(machine.host)
    assert not plan.refused
    machine.carry_out(plan)
    assert texts(machine) == texts(before)
    assert arguments(machine) == arguments(before)
    bound = [entry["address"] for entry in machine.raw["pci"] if entry["driver"] in ("vfio-pci", "pci-stub")]
    assert bound == []
    assert plan_undo(machine.host).operations == ()
    verification = verify_undone(machine.host, machine.images)
    assert verification.passed
    assert not [finding for finding in verification.findings if finding.severity != "info"]


@pytest.mark.parametrize("repaired", [False, True])
def test_a_file_that_grubby_made_for_an_earlier_version_goes(repaired: bool) -> None:
    """It has the rescue entry's arguments, which lack those that the others need for their root file system."""
    data, spec, _ = load(CASES / "rhel-9-prepared.yaml")
    before = Machine(load_raw(data))
    del before.raw["files"][KERNEL_CMDLINE]
    machine = Machine(before.raw)
    machine.carry_out(plan_host(spec, machine.host))
    record = machine.raw["files"][RECORD]
    lines = [line for line in record["text"].splitlines() if line.startswith(("entries ", "/etc/default/grub "))]
    record["text"] = render_record(lines)
    rescue = machine.raw["boot"]["entries"][-1]["arguments"]
    machine.raw["files"][KERNEL_CMDLINE]["text"] = f"{rescue}\n"
    if repaired:
        machine.carry_out(plan_host(spec, machine.host))
        line = machine.host.files[KERNEL_CMDLINE].text.split()
        assert "rd.lvm.lv=rl/root" in line
        assert "intel_iommu=on" in line
        assert plan_host(spec, machine.host).operations == ()
    machine.carry_out(plan_undo(machine.host))
    assert texts(machine) == texts(before)
    assert arguments(machine) == arguments(before)


def test_an_undo_without_the_file_of_arguments_is_refused() -> None:
    """kernel-install would take the running kernel's arguments, with those of gpustack."""
    before, machine = prepared("systemd-boot")
    text = machine.raw["files"].pop(KERNEL_CMDLINE)
    (found,) = (found for found in plan_undo(machine.host).findings if found.severity == "error")
    assert found.code == "GPU155"
    assert found.message.endswith("running kernel's instead of: root=UUID=5b7d1c3e ro quiet mitigations=auto")
    machine.raw["files"][KERNEL_CMDLINE] = {**text, "text": "root=UUID=5b7d1c3e ro quiet mitigations=auto\n"}
    machine.carry_out(plan_undo(machine.host))
    assert arguments(machine) == arguments(before)


def test_an_undo_keeps_arguments_that_only_an_entry_has() -> None:
    _, machine = prepared("systemd-boot-cmdline")
    machine.raw["boot"]["entries"][1]["arguments"] += " nosmt"
    plan = plan_undo(machine.host)
    assert [found.message for found in plan.findings if found.severity == "error"] == [
        "the arguments differ from /etc/kernel/cmdline: nosmt is only in the entry"
    ]


def test_an_argument_that_others_add_behind_stays() -> None:
    _, spec, _ = load(CASES / "systemd-boot-cmdline.yaml")
    before, machine = prepared("systemd-boot-cmdline")
    for state in (before, machine):
        file = state.raw["files"][KERNEL_CMDLINE]
        file["text"] = f"{file['text'].rstrip()} nosmt\n"
        for entry in state.raw["boot"]["entries"]:
            line, _, identity = entry["arguments"].rpartition(" ")
            entry["arguments"] = f"{line} nosmt {identity}"
    assert plan_host(spec, machine.host).operations == ()
    machine.carry_out(plan_undo(machine.host))
    assert (texts(machine), arguments(machine)) == (texts(before), arguments(before))


def test_a_host_whose_grub_was_replaced_by_systemd_boot_is_given_back() -> None:
    """Its new entries have the arguments of the kernel that ran, with those of gpustack's drop-in for GRUB."""
    data, spec, before = load(CASES / "systemd-boot.yaml")
    machine = Machine(snapshot(data["host"]))
    machine.carry_out(plan_host(spec, machine.host))
    assert GRUB in machine.host.files
    machine.raw = changed(machine.raw, data["changes"])
    for entry in machine.raw["boot"]["entries"]:
        entry["arguments"] += " intel_iommu=on iommu=pt"
    assert plan_undo(machine.host).refused
    machine.carry_out(plan_host(spec, machine.host))
    assert GRUB not in machine.host.files
    assert plan_host(spec, machine.host).operations == ()
    machine.carry_out(plan_undo(machine.host))
    assert arguments(machine) == arguments(before)
    assert not {GRUB, RECORD, KERNEL_CMDLINE} & machine.host.files.keys()


def test_several_lines_of_kernel_arguments_block_an_undo_with_grubby() -> None:
    _, machine = prepared("rhel-9")
    machine.raw["files"][KERNEL_CMDLINE] = {"text": "root=/dev/sda1 ro\nquiet\n", "mode": "0644", "mtime_ns": 1}
    plan = plan_undo(machine.host)
    assert plan.refused
    assert [f.place for f in plan.findings if f.code == "GPU250"] == ["gpu01 /etc/kernel/cmdline"]


def test_the_plan_says_what_it_does_and_why() -> None:
    _, machine = prepared("identical-prepared")
    plan = plan_undo(machine.host)
    assert described(plan) == [
        f"create {JOURNAL}",
        *(f"remove {path}" for path in (GRUB, MODPROBE, SCRIPT, HOOK, MODULES_LOAD)),
        "run update-initramfs -u -k 6.1.0-37-amd64",
        "run update-initramfs -u -k 6.1.0-35-amd64",
        "run update-grub",
        f"remove {JOURNAL}",
        "reboot",
    ]
    images = [op.why for op in plan.operations if isinstance(op, RunCommand) and op.argv[0] == "update-initramfs"]
    assert images == [f"applies the removal of {MODPROBE} and {SCRIPT} and {HOOK}"] * 2
    assert plan.reboot == (
        "the running kernel was started with intel_iommu=on, which is no longer wanted",
        "the running kernel was started with iommu=pt, which is no longer wanted",
        "0000:84:00.0 is on vfio-pci, which is no longer wanted",
        "0000:84:00.1 is on vfio-pci, which is no longer wanted",
    )


def test_a_host_that_gpustack_never_touched_is_left_alone() -> None:
    _, _, machine = load(CASES / "first-run.yaml")
    plan = plan_undo(machine.host)
    assert (plan.operations, plan.findings, plan.reboot) == ((), (), ())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PREPARED), st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_an_undo_that_breaks_anywhere_is_finished_by_the_next(case: str, first: int, second: int, booted: bool) -> None:
    before, machine = prepared(case)
    for count in (first, second):
        for operation in plan_undo(machine.host).operations[:count]:
            machine.do(operation, reboot=False)
    if booted:
        machine.boot()
    machine.carry_out(plan_undo(machine.host))
    assert texts(machine) == texts(before)
    assert arguments(machine) == arguments(before)
    for image in machine.images.values():
        assert not {MODPROBE, "/scripts/init-top/gpustack"} & set(image["files"])
    assert plan_undo(machine.host).operations == ()


def test_the_boot_that_is_left_to_come_is_remembered() -> None:
    _, machine = prepared("prepared")
    machine.carry_out(plan_undo(machine.host), reboot=False)
    plan = plan_undo(machine.host)
    assert [type(operation) for operation in plan.operations] == [Reboot]
    verification = verify_undone(machine.host, machine.images)
    assert not verification.passed
    assert {finding.code for finding in verification.findings} == {"GPU213"}


def test_a_file_that_was_changed_by_hand_is_left_until_force() -> None:
    before, machine = prepared("prepared")
    text = machine.raw["files"][MODPROBE]["text"]
    assert is_untouched(text)
    machine.raw["files"][MODPROBE]["text"] = edited = text.replace("# The devices", "blacklist pcspkr\n# The devices")
    plan = plan_undo(machine.host)
    assert [f"{f.code} {f.place}" for f in plan.findings] == [f"GPU150 gpu01 {MODPROBE}"]
    assert f"remove {MODPROBE}" not in described(plan)
    assert not any("vfio-pci, which is no longer wanted" in reason for reason in plan.reboot)
    undone = Machine(machine.raw)
    undone.carry_out(plan)
    assert texts(undone) == {**texts(before), MODPROBE: (edited, "0644")}
    assert plan_undo(undone.host).operations == ()
    machine.carry_out(plan_undo(machine.host, force=True))
    assert texts(machine) == texts(before)


def test_undo_refuses_to_damage_bytes_that_are_not_utf8() -> None:
    _, machine = prepared("rhel-9")
    machine.raw["files"]["/etc/default/grub"]["text"] += "# f\ufffdr die Server\n"  # Latin-1, as the collector reads it
    plan = plan_undo(machine.host)
    assert plan.refused
    assert [(f.code, f.place) for f in plan.findings] == [("GPU132", "gpu01")]
    assert "/etc/default/grub: not valid UTF-8" in plan.findings[0].message


def test_a_file_of_somebody_elses_is_never_removed() -> None:
    before, machine = prepared("prepared")
    machine.raw["files"][HOOK]["text"] = "#!/bin/sh\n# mine\n"
    for force in (False, True):
        plan = plan_undo(machine.host, force=force)
        assert [f"{f.code} {f.place}" for f in plan.findings] == [f"GPU151 gpu01 {HOOK}"]
        assert f"remove {HOOK}" not in described(plan)
    machine.carry_out(plan_undo(machine.host))
    assert set(texts(machine)) - set(texts(before)) == {HOOK}
    assert verify_undone(machine.host, machine.images).passed


def test_an_override_that_is_not_gpustacks_stays() -> None:
    _, machine = prepared("prepared")
    pinned = {"driver": "vfio-pci", "driver_override": "vfio-pci"}
    machine.raw = changed(machine.raw, {"pci": {"0000:88:00.0": pinned}})
    plan = plan_undo(machine.host)
    assert not any("0000:88:00.0" in reason for reason in plan.reboot)


def shared(**more: Any) -> Machine:
    """A prepared host with a virtual function of a card that is on vfio-pci."""
    _, machine = prepared("prepared")
    part = {"vendor": "10de", "product": "11b4", "class": "030200", "physical_function": "0000:88:00.0", **more}
    machine.raw = changed(machine.raw, {"pci": {"0000:88:10.0": part}})
    return machine


def test_virtual_functions_of_instances_block_the_undo() -> None:
    plan = plan_undo(shared(driver="vfio-pci", driver_override="vfio-pci").host)
    assert plan.refused
    (error,) = (f for f in plan.findings if f.severity == "error")
    assert (error.code, error.place) == ("GPU876", "gpu01 0000:88:00.0")


def test_created_virtual_functions_of_instances_block_the_undo() -> None:
    _, machine = prepared("shared-card")
    machine.raw = changed(machine.raw, {"pci": {"0000:88:10.2": {"driver": "vfio-pci"}}})
    plan = plan_undo(machine.host)
    (error,) = (f for f in plan.findings if f.severity == "error")
    assert (error.code, error.place, "0000:88:10.2" in error.message) == ("GPU876", "gpu01 0000:88:00.0", True)


@pytest.mark.parametrize(("holders", "is_refused"), [(["instance 5ae5d3a1"], True), (None, True), ([], False)])
def test_virtual_functions_on_the_nvidia_driver_block_by_their_users(
    holders: list[str] | None, is_refused: bool
) -> None:
    _, machine = prepared("shared-card")
    part = {"driver": "nvidia", "mediated": ["vGPU type 711"], "holders": holders}
    machine.raw = changed(machine.raw, {"pci": {"0000:88:10.2": part}})
    plan = plan_undo(machine.host)
    assert (plan.refused, "GPU876" in [f.code for f in plan.findings]) == (is_refused, is_refused)


@pytest.mark.parametrize("path", VFS)
def test_one_modified_file_does_not_retain_virtual_functions(path: str) -> None:
    """The undo removes the other files, so the next boot creates none."""
    _, machine = prepared("network-card-beside-a-shared-card")
    machine.raw["files"][path]["text"] += "# modified\n"
    assert "0000:88:00.0 has 4 virtual functions, no longer wanted" in plan_undo(machine.host).reboot
    machine.raw = changed(machine.raw, {"pci": {"0000:88:10.2": {"driver": "vfio-pci"}}})
    assert "GPU876" in [f.code for f in plan_undo(machine.host).findings]


def test_modified_files_retain_virtual_functions_together() -> None:
    _, machine = prepared("network-card")
    for path in VFS:
        if path in machine.raw["files"]:
            machine.raw["files"][path]["text"] += "# modified\n"
    assert not any("virtual functions" in reason for reason in plan_undo(machine.host).reboot)


def test_virtual_functions_of_a_network_card_block_the_undo() -> None:
    _, machine = prepared("network-card")
    machine.raw = changed(machine.raw, {"pci": {"0000:01:10.2": {"driver": "vfio-pci"}}})
    errors = [(f.code, f.place) for f in plan_undo(machine.host).findings if f.severity == "error"]
    assert errors == [("GPU876", "gpu01 0000:01:00.1")]


def test_created_virtual_functions_stay_until_the_reboot() -> None:
    _, machine = prepared("shared-card")
    machine.carry_out(plan_undo(machine.host), reboot=False)
    assert "0000:88:00.0 has 4 virtual functions, no longer wanted" in plan_undo(machine.host).reboot
    failed = [(f.code, f.place) for f in verify_undone(machine.host, machine.images).findings]
    assert ("GPU213", "gpu01 0000:88:00.0") in failed


def test_second_undo_before_the_reboot_still_requests_it() -> None:
    """The host has its kernel arguments from elsewhere, so the undo changes neither the menu nor an initramfs."""
    case, spec, _ = load(CASES / "shared-card.yaml")
    machine = Machine(changed(load_raw(case), {"files": {"/etc/default/grub": GRUB_WITH_IOMMU}}))
    machine.do(RunCommand(argv=("update-grub",), why="the administrator's arguments"))
    machine.boot()
    machine.carry_out(plan_host(spec, machine.host))
    machine.carry_out(plan_undo(machine.host), reboot=False)
    again = plan_undo(machine.host)
    assert ([f.code for f in again.findings], len(again.reboot)) == ([], 1)
    machine.carry_out(again)
    assert verify_undone(machine.host, machine.images).passed


def test_virtual_functions_are_never_bound_by_gpustack() -> None:
    _, machine = prepared("prepared")
    machine.carry_out(plan_undo(machine.host))
    card = {"sriov_numvfs": 1, "sriov_totalvfs": 4}
    part = {"vendor": "10de", "product": "11b4", "class": "030200", "driver": "vfio-pci"}
    pci = {"0000:88:00.0": card, "0000:88:10.0": {**part, "physical_function": "0000:88:00.0"}}
    machine.raw = changed(machine.raw, {"pci": pci})
    assert not any("0000:88:10.0" in reason for reason in plan_undo(machine.host).reboot)


def test_what_another_reboot_would_not_change_is_reported() -> None:
    _, machine = prepared("prepared")
    machine.carry_out(plan_undo(machine.host))
    machine.raw = changed(machine.raw, {"pci": {"0000:88:00.0": {"driver": "vfio-pci"}}})
    machine.raw["kernel"]["booted_at"] = machine.now
    plan = plan_undo(machine.host)
    assert (plan.operations, plan.reboot) == ((), ())
    assert [finding.code for finding in plan.findings] == ["GPU152"]
    assert not verify_undone(machine.host, machine.images).passed


@pytest.mark.parametrize("code", ["GPU197", "GPU134"])
def test_a_host_whose_tools_are_not_known_is_refused(code: str) -> None:
    _, machine = prepared("prepared")
    if code == "GPU197":
        machine.raw["initramfs_tool"] = "mkinitcpio"
    else:
        no = {"/etc/initramfs-tools/update-initramfs.conf": "update_initramfs=no\n"}
        machine.raw = changed(machine.raw, {"files": no})
    plan = plan_undo(machine.host)
    assert plan.refused
    assert plan.operations == ()
    assert code in {finding.code for finding in plan.findings}


@pytest.mark.parametrize(
    ("leftover", "location"),
    [
        ("file", GRUB),
        ("entry", ""),
        ("command line", "/proc/cmdline"),
        ("image", "/boot/initrd.img"),
    ],
)
def test_what_is_left_is_found(leftover: str, location: str) -> None:
    _, machine = prepared("identical-prepared")
    old = copy.deepcopy(machine)
    machine.carry_out(plan_undo(machine.host))
    if leftover == "file":
        machine.raw["files"][GRUB] = old.raw["files"][GRUB]
    elif leftover == "entry":
        machine.raw["boot"]["entries"] = old.raw["boot"]["entries"]
        location = old.raw["boot"]["entries"][0]["source"]
    elif leftover == "command line":
        machine.raw["kernel"]["command_line"] += " intel_iommu=on"
    else:
        machine.images = old.images
    verification = verify_undone(machine.host, machine.images)
    assert not verification.passed
    assert {finding.code for finding in verification.findings} == {"GPU213"}
    assert all(finding.place.startswith(f"gpu01 {location}") for finding in verification.findings)
    if leftover == "image":
        message = f"it has {MODPROBE}, {SCRIPT.removeprefix('/etc/initramfs-tools')}"
        assert all(message in finding.message for finding in verification.findings)


def test_images_that_were_not_read_prove_nothing() -> None:
    _, machine = prepared("prepared")
    machine.carry_out(plan_undo(machine.host))
    verification = verify_undone(machine.host, None)
    assert {f"{f.code} {f.severity}" for f in verification.findings} == {"GPU210 warning"}


def test_commands_are_only_those_of_the_distribution() -> None:
    _, machine = prepared("prepared")
    ran = {op.argv[0] for op in plan_undo(machine.host).operations if isinstance(op, RunCommand)}
    assert ran == {"update-initramfs", "update-grub"}

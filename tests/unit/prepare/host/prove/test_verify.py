"""The verification: a prepared host passes, and everything that can be wrong with one is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.prove.checks import CheckStatus
from gpustack.prepare.host.prove.verify import Verification, verify_host
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_cases import load
from support.host_samples import changed

CASES = Path(__file__).parents[1] / "cases"
MODPROBE = "/etc/modprobe.d/gpustack.conf"
RELEASE = "6.1.0-35-amd64"


@pytest.fixture
def prepared() -> tuple[Spec, Machine]:
    """The talk's host, prepared and booted."""
    _, spec, machine = load(CASES / "prepared.yaml")
    return spec, machine


def codes(verification: Verification) -> list[str]:
    return [f"{finding.code} {finding.severity}" for finding in verification.findings if finding.severity != "info"]


def test_a_prepared_host_passes(prepared: tuple[Spec, Machine]) -> None:
    spec, machine = prepared
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed
    assert {check.status for check in verification.checks} == {CheckStatus.OK}
    text = " ".join(check.what for check in verification.checks)
    for proof in ("IOMMU is active", "remapped", "intel_iommu=on", "menu entry", "initramfs", "viable", "memory"):
        assert proof in text


BROKEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "iommu off": ({"set": {"iommu.units": [], "iommu.group_count": 0}}, ["GPU201 error"]),
    "interrupts not remapped": ({"set": {"iommu.interrupt_remapping": False}}, ["GPU123 error", "GPU209 error"]),
    "interrupts unknown": ({"set": {"iommu.interrupt_remapping": None}}, ["GPU210 warning"]),
    "running without an argument": (
        {"set": {"kernel.command_line": "root=/dev/sda1 ro iommu=pt amd_iommu=on intel_iommu=off"}},
        ["GPU204 error", "GPU204 error"],
    ),
    "running with one too many": (
        {"set": {"kernel.command_line": "ro intel_iommu=on iommu=pt vfio_iommu_type1.allow_unsafe_interrupts=1"}},
        ["GPU204 error"],
    ),
    "command line unknown": ({"set": {"kernel.command_line": None}}, ["GPU210 error", "GPU139 warning"]),
    "first entry": ({"set": {"boot.entries.0.arguments": "root=/dev/sda1 ro"}}, ["GPU205 error"]),
    "another entry": ({"set": {"boot.entries.3.arguments": "ro intel_iommu=on"}}, ["GPU205 warning"]),
    "file changed": ({"files": {MODPROBE: "# Written by gpustack.\n"}}, ["GPU206 error"]),
    "file gone": ({"files": {MODPROBE: None}}, ["GPU206 error"]),
    "mode changed": ({"set": {"initramfs_tool": "initramfs-tools"}, "hook_mode": "0644"}, ["GPU206 error"]),
    "audio on its host driver": (
        {"pci": {"0000:88:00.1": {"driver": "snd_hda_intel"}}},
        ["GPU202 error", "GPU203 error"],
    ),
    "audio held by another name than its driver's": (
        {"pci": {"0000:88:00.1": {"driver": "snd_hda_intel", "claims": ["ICH HD audio"]}}},
        ["GPU202 error", "GPU203 error"],
    ),
    "no driver": ({"pci": {"0000:88:00.1": {"driver": None}}}, ["GPU202 error"]),
    "framebuffer": ({"pci": {"0000:88:00.0": {"claims": ["BOOTFB"]}}}, ["GPU208 error", "GPU016 warning"]),
    "claimed by the guest's driver": ({"pci": {"0000:88:00.0": {"claims": ["vfio-pci"]}}}, []),
    "no group": ({"pci": {"0000:88:00.0": {"iommu_group": None}}}, ["GPU012 error", "GPU203 error"]),
    "a stranger in the group": (
        {
            "pci": {
                "0000:88:00.0": {"iommu_group": 200},
                "0000:88:00.1": {"iommu_group": 200},
                "0000:01:00.0": {"iommu_group": 200},
            }
        },
        ["GPU013 error", "GPU203 error"],
    ),
    "a root port in the group": (
        {
            "pci": {
                "0000:80:03.0": {"iommu_group": 200},
                "0000:88:00.0": {"iommu_group": 200},
                "0000:88:00.1": {"iommu_group": 200},
            }
        },
        [],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_found(name: str, prepared: tuple[Spec, Machine]) -> None:
    spec, machine = prepared
    changes, expected = BROKEN[name]
    machine.raw = changed(machine.raw, changes)
    if "hook_mode" in changes:
        machine.raw["files"]["/etc/initramfs-tools/hooks/gpustack"]["mode"] = changes["hook_mode"]
    verification = verify_host(spec, machine.host, machine.images)
    reported = [code for code in codes(verification) if not code.startswith(("GPU206", "GPU207"))]
    if "file" in name or "mode" in name:
        reported = codes(verification)
    assert sorted(set(reported)) == sorted(set(expected))
    assert verification.passed == (not any(code.endswith("error") for code in codes(verification)))


def test_a_kernel_without_host_drivers_needs_the_files_of_the_others() -> None:
    _, spec, machine = load(CASES / "booted-without-host-drivers.yaml")
    assert verify_host(spec, machine.host, machine.images).passed
    text = machine.raw["files"][MODPROBE]["text"]
    line = "softdep snd_hda_intel pre: vfio-pci\n"
    assert line in text
    machine.raw["files"][MODPROBE]["text"] = text.replace(line, "")
    assert codes(verify_host(spec, machine.host, machine.images)) == ["GPU206 error"]
    for image in machine.images.values():
        image["files"][MODPROBE]["text"] = text.replace(line, "")
    verification = verify_host(spec, machine.host, machine.images)
    assert codes(verification) == ["GPU206 error", "GPU207 error", "GPU207 error"]


def test_a_kernel_to_come_without_the_arguments_fails() -> None:
    _, spec, machine = load(CASES / "rhel-9-prepared.yaml")
    assert verify_host(spec, machine.host, machine.images).passed
    machine.raw["files"]["/etc/kernel/cmdline"]["text"] = "root=/dev/mapper/rl-root ro\n"
    verification = verify_host(spec, machine.host, machine.images)
    assert codes(verification) == ["GPU215 error"]
    assert not verification.passed


def test_entries_by_hand_beside_files_are_warnings() -> None:
    _, spec, machine = load(CASES / "rhel-9-entries-by-hand.yaml")
    entries = machine.raw["boot"]["entries"]
    entries.sort(key=lambda entry: entry["source"])  # the collector reads GRUB's menu before the files
    assert entries[0]["title"] == "Rescue system"
    verification = verify_host(spec, machine.host, machine.images)
    assert codes(verification) == ["GPU205 warning", "GPU205 warning"]
    assert verification.passed


def damaged(image: dict[str, Any], damage: str) -> dict[str, Any]:
    match damage:
        case "no module":
            return {**image, "modules": ["vfio_iommu_type1"]}
        case "not loaded":
            return {**image, "files": {**image["files"], "/conf/modules": {"text": "# vfio_pci\nvfio_iommu_type1\n"}}}
        case "no modprobe.d":
            return {**image, "files": {"/conf/modules": image["files"]["/conf/modules"]}}
        case "old modprobe.d":
            return {**image, "files": {**image["files"], MODPROBE: {"text": "options vfio-pci ids=10de:11b4\n"}}}
        case "other kernel":
            return {**image, "releases": ["5.10.0-1-amd64"]}
    raise AssertionError(damage)


@pytest.mark.parametrize("damage", ["no module", "not loaded", "no modprobe.d", "old modprobe.d", "other kernel"])
def test_an_initramfs_that_would_not_bind_is_found(damage: str, prepared: tuple[Spec, Machine]) -> None:
    spec, machine = prepared
    images = {**machine.images, RELEASE: damaged(machine.images[RELEASE], damage)}
    verification = verify_host(spec, machine.host, images)
    assert codes(verification) == ["GPU207 error"]
    assert RELEASE in verification.findings[0].message
    assert f"`update-initramfs -u -k {RELEASE}`" in verification.findings[0].remedy


def without(image: dict[str, Any], *fragments: str) -> dict[str, Any]:
    files = {path: file for path, file in image["files"].items() if not any(part in path for part in fragments)}
    return {**image, "files": files}


DRACUT_DAMAGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "vfio_pci is not loaded": lambda image: without(image, "/etc/cmdline.d/"),
    "/etc/modprobe.d/gpustack.conf is missing": lambda image: without(image, "modprobe.d"),
    "gpustack.sh is not among its pre-udev hooks": lambda image: without(image, "pre-udev"),
    "gpustack.sh differs from the one that is planned": lambda image: {
        **image,
        "files": {path: {"text": f"{file['text']} "} for path, file in image["files"].items()},
    },
    "the module vfio_pci is missing": lambda image: {**image, "modules": []},
}


@pytest.mark.parametrize("message", DRACUT_DAMAGED)
def test_an_image_of_dracuts_that_would_not_bind_is_found(message: str) -> None:
    _, spec, machine = load(CASES / "dracut-by-address.yaml")
    machine.carry_out(plan_host(spec, machine.host))
    assert verify_host(spec, machine.host, machine.images).passed
    images = {**machine.images, RELEASE: DRACUT_DAMAGED[message](machine.images[RELEASE])}
    verification = verify_host(spec, machine.host, images)
    assert codes(verification) == ["GPU207 error"]
    assert message in verification.findings[0].message


def test_an_initramfs_that_was_not_read_proves_nothing(prepared: tuple[Spec, Machine]) -> None:
    spec, machine = prepared
    unread = {**machine.images, RELEASE: {"error": "zstd is not installed"}}
    assert codes(verify_host(spec, machine.host, unread)) == ["GPU210 error"]
    missing = {release: image for release, image in machine.images.items() if release != RELEASE}
    assert codes(verify_host(spec, machine.host, missing)) == ["GPU207 error"]
    none_read = verify_host(spec, machine.host, None)
    assert none_read.passed
    assert codes(none_read) == ["GPU210 warning"]


def test_hidden_addresses_prove_nothing(prepared: tuple[Spec, Machine]) -> None:
    spec, machine = prepared
    machine.raw["unread"] = [{"path": "/proc/iomem", "error": "hidden"}]
    verification = verify_host(spec, machine.host, machine.images)
    assert not verification.passed
    assert {check.seen for check in verification.checks if check.status is CheckStatus.UNKNOWN} == {
        "/proc/iomem could not be read"
    }


def test_unsafe_interrupts_are_accepted_only_when_asked_for() -> None:
    _, spec, machine = load(CASES / "unsafe-interrupts.yaml")
    machine.carry_out(plan_host(spec, machine.host))
    machine.raw["iommu"].update(interrupt_remapping=False, unsafe_interrupts=True)
    assert verify_host(spec, machine.host, machine.images).passed
    machine.raw["iommu"].update(unsafe_interrupts=False)
    assert "GPU209 error" in codes(verify_host(spec, machine.host, machine.images))


def test_a_host_that_the_spec_does_not_name_is_not_verified() -> None:
    _, spec, machine = load(CASES / "not-in-the-spec.yaml")
    verification = verify_host(spec, machine.host, {})
    assert not verification.passed
    assert verification.checks == ()


def test_kernels_that_have_the_driver_built_in_need_no_initramfs() -> None:
    _, spec, machine = load(CASES / "vfio-built-in.yaml")
    machine.carry_out(plan_host(spec, machine.host))
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed
    assert any("vfio-pci.ids=" in check.what for check in verification.checks)


IN_IMAGE = "/scripts/init-top/gpustack"
ORDER = "/scripts/init-top/ORDER"


@pytest.fixture
def one_of_two() -> tuple[Spec, Machine]:
    """A host with two identical cards, one of which goes to guests: prepared and booted."""
    _, spec, machine = load(CASES / "identical-prepared.yaml")
    return spec, machine


def test_one_of_two_identical_cards_passes_and_the_other_is_looked_at(one_of_two: tuple[Spec, Machine]) -> None:
    spec, machine = one_of_two
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed
    results = {(check.place, check.what, check.seen) for check in verification.checks}
    assert ("gpu01 0000:88:00.0", "this 10de:11b4 stays with the host", "it is on nouveau") in results
    subject = "the device to be bound here is 10de:11b4 (subsystem 10de:1096, class 030000)"
    assert ("gpu01 0000:84:00.0", subject, "") in results
    states = [check.seen for check in verification.checks if "initramfs of" in check.what]
    assert len(states) == 2
    assert all("runs before udev" in text for text in states)


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub"])
def test_a_card_that_should_stay_and_was_taken_is_named(one_of_two: tuple[Spec, Machine], driver: str) -> None:
    spec, machine = one_of_two
    machine.raw = changed(machine.raw, {"pci": {"0000:88:00.0": {"driver": driver}}})
    verification = verify_host(spec, machine.host, machine.images)
    assert codes(verification) == ["GPU212 error"]
    assert verification.findings[0].place == "gpu01 0000:88:00.0"
    machine.raw = changed(machine.raw, {"pci": {"0000:88:00.0": {"driver_override": driver}}})
    assert verify_host(spec, machine.host, machine.images).passed  # driverctl, say


def test_another_device_at_a_bound_address_is_named(one_of_two: tuple[Spec, Machine]) -> None:
    spec, machine = one_of_two
    network = {"vendor": "8086", "product": "1521", "class": "020000", "driver": "igb", "driver_override": None}
    machine.raw = changed(machine.raw, {"pci": {"0000:84:00.0": network, "0000:84:00.1": None}})
    verification = verify_host(spec, machine.host, machine.images)
    assert not verification.passed
    reported = {f"{finding.code} {finding.place}": finding.message for finding in verification.findings}
    assert "there is 8086:1521 (subsystem 10de:1096, class 020000)" in reported["GPU211 gpu01 0000:84:00.0"]
    assert "there is nothing" in reported["GPU211 gpu01 0000:84:00.1"]
    assert "GPU102 gpu01" in reported


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (IN_IMAGE, None, "is missing"),
        (IN_IMAGE, "#!/bin/sh\n", "differs from the one that is planned"),
        (ORDER, None, "is not run"),
        (ORDER, '/scripts/init-top/udev "$@"\n/scripts/init-top/gpustack "$@"\n', "is run after udev"),
    ],
)
def test_an_initramfs_that_would_not_bind_by_address_is_found(
    one_of_two: tuple[Spec, Machine], path: str, text: str | None, message: str
) -> None:
    spec, machine = one_of_two
    image = machine.images[RELEASE]
    files = {name: file for name, file in image["files"].items() if name != path}
    files |= {path: {"text": text}} if text is not None else {}
    verification = verify_host(spec, machine.host, {**machine.images, RELEASE: {**image, "files": files}})
    assert codes(verification) == ["GPU207 error"]
    assert message in verification.findings[0].message


def test_a_card_on_its_variant_driver_is_ready_and_on_another_is_not() -> None:
    _, spec, machine = load(CASES / "variant.yaml")
    machine.carry_out(plan_host(spec, machine.host))
    assert verify_host(spec, machine.host, machine.images).passed
    assert not plan_host(spec, machine.host).operations
    # Drivers may spell with - what their modules spell with _.
    machine.raw = changed(machine.raw, {"pci": {"0000:88:00.0": {"driver": "nvgrace-gpu-vfio-pci"}}})
    assert verify_host(spec, machine.host, machine.images).passed
    machine.raw = changed(machine.raw, {"pci": {"0000:88:00.0": {"driver": "vfio-pci"}}})
    assert codes(verify_host(spec, machine.host, machine.images)) == ["GPU202 error"]


def test_virtual_functions_exist_without_a_host_driver() -> None:
    _, spec, machine = load(CASES / "shared-card-prepared.yaml")
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed
    assert [check.what for check in verification.checks].count("no driver of the host has the virtual function") == 4
    assert "the IOMMU is active" in {check.what for check in verification.checks}
    held = changed(machine.raw, {"pci": {"0000:88:10.1": {"driver": "nouveau"}}})
    assert codes(verify_host(spec, Machine(held).host, machine.images)) == ["GPU202 error", "GPU203 error"]
    fewer = changed(machine.raw, {"pci": {"0000:88:00.0": {"sriov_numvfs": 0}}})
    assert codes(verify_host(spec, Machine(fewer).host, machine.images)) == ["GPU881 error"]


def test_virtual_functions_of_nvidia_are_ready_on_its_driver() -> None:
    """NVIDIA's host driver binds them, and creates more than the spec requires."""
    _, spec, machine = load(CASES / "shared-card-prepared.yaml")
    quarter = spec.models["quarter"]
    typed = quarter.vfs.model_copy(update={"count": 2, "vgpu_type": 711}) if quarter.vfs else None
    spec = spec.model_copy(update={"models": {"quarter": quarter.model_copy(update={"vfs": typed})}})
    parts = {f"0000:88:10.{number}": {"driver": "nvidia"} for number in range(4)}
    parts |= {f"0000:88:10.{number}": {"driver": "nvidia", "mediated": ["vGPU type 711"]} for number in range(2)}
    card = {"0000:88:00.0": {"driver": "nvidia"}}
    nvidia = Machine(changed(machine.raw, {"pci": {**card, **parts}, "set": {"domains": []}}))
    nvidia.carry_out(plan_host(spec, nvidia.host), reboot=False)
    verification = verify_host(spec, nvidia.host, nvidia.images)
    assert verification.passed, codes(verification)
    unread = changed(
        nvidia.raw, {"set": {"unread": [{"path": "/etc/libvirt/qemu/instance-1.xml", "error": "I/O error"}]}}
    )
    assert "GPU210 error" in codes(verify_host(spec, Machine(unread).host, nvidia.images))
    assert sum("IOMMU group" in check.what for check in verification.checks) == 2
    other = Machine(changed(nvidia.raw, {"pci": {"0000:88:10.1": {"mediated": ["vGPU type 712"], "holders": []}}}))
    (error,) = verify_host(spec, other.host, other.images).findings
    assert (error.code, "the vGPU type of 0000:88:10.1 is not 711" in error.message) == ("GPU881", True)


def test_virtual_functions_left_over_fail_the_verification() -> None:
    """The files are as planned, but the host has not rebooted since its spec lost the model."""
    _, spec, machine = load(CASES / "shared-card-no-longer-but-in-use.yaml")
    free = {f"0000:88:10.{number}": {"driver": None, "holders": None} for number in range(4)}
    machine.raw = changed(machine.raw, {"pci": free})
    machine.carry_out(plan_host(spec, machine.host), reboot=False)
    assert "GPU213 error" in codes(verify_host(spec, machine.host, machine.images))
    machine.boot()
    assert verify_host(spec, machine.host, machine.images).passed


def test_verification_reports_why_the_script_skipped_a_card() -> None:
    _, spec, machine = load(CASES / "shared-card-prepared.yaml")
    record = {"/run/gpustack/virtual-functions": "0000:88:00.0 is skipped: it has no driver\n"}
    bare = Machine(changed(machine.raw, {"pci": {"0000:88:00.0": {"sriov_numvfs": 0}}, "files": record}))
    (error,) = verify_host(spec, bare.host, machine.images).findings
    assert (error.code, "(skipped at boot: it has no driver)" in error.message) == ("GPU881", True)


def test_virtual_functions_of_network_cards_are_checked() -> None:
    _, spec, machine = load(CASES / "network-card-prepared.yaml")
    assert verify_host(spec, machine.host, machine.images).passed
    fewer = changed(machine.raw, {"pci": {"0000:01:00.1": {"sriov_numvfs": 2}}})
    (error,) = verify_host(spec, Machine(fewer).host, machine.images).findings
    assert (error.code, error.place) == ("GPU881", "gpu01 0000:01:00.1")
    group = next(f.iommu_group for f in machine.host.pci if f.address == "0000:01:00.0")
    beside = changed(machine.raw, {"pci": {"0000:01:10.2": {"iommu_group": group}}})
    (error,) = verify_host(spec, Machine(beside).host, machine.images).findings
    assert (error.code, error.place) == ("GPU203", "gpu01 0000:01:10.2")
    assert "0000:01:00.0 is on igb" in error.message


def test_virtual_functions_of_others_need_a_viable_group() -> None:
    """libvirt takes their own driver from them; nothing takes a driver from another member of the group."""
    case, spec, machine = load(CASES / "virtual-functions-in-other-slots-as-a-model.yaml")
    machine.carry_out(plan_host(spec, machine.host))
    functions = {address: {**fields, "driver": "igbvf"} for address, fields in case["changes"]["pci"].items()}
    groups = {address: {**functions[address], "iommu_group": 300} for address in functions if ":10." in address}
    shared = Machine(changed(machine.raw, {"pci": functions | groups}))
    failed = [(f.code, f.place) for f in verify_host(spec, shared.host, machine.images).findings]
    assert failed[:2] == [("GPU203", "gpu01 0000:88:10.0"), ("GPU203", "gpu01 0000:88:10.2")]
    apart = Machine(changed(shared.raw, {"pci": {"0000:88:10.2": {"iommu_group": 301}}}))
    assert verify_host(spec, apart.host, machine.images).passed

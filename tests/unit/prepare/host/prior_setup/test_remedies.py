"""Remedies lead somewhere: gpustack takes over what a remedy offers to take over, else another way is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.prepare.host.plan import HostPlan, plan_host
from support.boot_simulation import Machine
from support.host_cases import CASES, SPEC, load
from support.host_samples import changed, snapshot

_OFFER = "gpustack_adopt"
_OFFERED = frozenset({"GPU120", "GPU135", "GPU140", "GPU143", "GPU218"})
ENTRY = "/boot/loader/entries/4a-5.14.0-427.13.1.el9_4.x86_64.conf"


def offers(plan: HostPlan) -> set[tuple[str, str]]:
    return {(f.code, f.place) for f in plan.findings if f.code in _OFFERED and _OFFER in f.remedy}


_CONFLICTS = [path for path in CASES if any(code in path.read_text(encoding="utf-8") for code in _OFFERED)]


@pytest.mark.parametrize("path", _CONFLICTS, ids=[path.stem for path in _CONFLICTS])
def test_what_a_remedy_offers_to_adopt_is_adopted(path: Path) -> None:
    _, spec, machine = load(path)
    offered = offers(plan_host(spec, machine.host))
    adopted = plan_host(spec, machine.host, adopt=True)
    assert not offers(adopted)
    remaining = {(f.code, f.place) for f in adopted.findings if f.code in _OFFERED}
    assert not offered & remaining


def redhat(arguments: str, files: dict[str, str]) -> Machine:
    _, _, machine = load(next(path for path in CASES if path.stem == "rhel-9"))
    machine.raw = changed(machine.raw, {"arguments": f"root=/dev/sda1 ro {arguments}", "files": files})
    return machine


def remedies(machine: Machine, *, adopt: bool = False) -> dict[str, str]:
    plan = plan_host(SPEC, machine.host, adopt=adopt)
    assert plan.refused
    return {f.place.removeprefix("gpu01 "): f.remedy for f in plan.findings if f.code in _OFFERED}


@pytest.mark.parametrize("adopt", [False, True])
def test_boot_entries_name_grubby_and_the_files_with_the_argument(adopt: bool) -> None:
    files = {"/etc/kernel/cmdline": "root=/dev/sda1 ro vfio-pci.ids=10de:11b4\n"}
    by_place = remedies(redhat("vfio-pci.ids=10de:11b4", files), adopt=adopt)
    assert by_place[ENTRY] == (
        "`grubby --update-kernel=ALL --remove-args=vfio-pci.ids=10de:11b4 --no-etc-grub-update`; take it out of "
        "/etc/kernel/cmdline as well, then plan again; gpustack can't take it over"
    )


def test_an_argument_of_edpm_is_changed_in_edpm() -> None:
    text = (
        'GRUB_CMDLINE_LINUX="quiet"\nGRUB_EDPM_KERNEL_ARGS=" intel_iommu=off "\n'
        'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }${GRUB_EDPM_KERNEL_ARGS}"\n'
    )
    by_place = remedies(redhat("intel_iommu=off", {"/etc/default/grub": text}))
    change = "change edpm_kernel_args of the node set: intel_iommu=off comes from GRUB_EDPM_KERNEL_ARGS"
    assert {place: remedy.partition(" (")[0] for place, remedy in by_place.items()} == dict.fromkeys(by_place, change)
    assert {"/etc/default/grub:2", ENTRY} <= set(by_place)


def test_an_argument_of_tuned_in_a_boot_entry_is_changed_in_tuned() -> None:
    files = {"/etc/tuned/bootcmdline": 'TUNED_BOOT_CMDLINE="skew_tick=1 intel_iommu=off"\n'}
    by_place = remedies(redhat("skew_tick=1 intel_iommu=off", files))
    assert set(by_place) == {"/etc/tuned/bootcmdline:1"}
    assert by_place["/etc/tuned/bootcmdline:1"].startswith("choose or write a tuned profile that does not set")


def test_a_file_of_a_package_is_hidden_by_one_in_etc() -> None:
    rule = 'SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{device}=="0x11b4", RUN+="/bin/driverctl set-override x"\n'
    files = {
        "/usr/lib/udev/rules.d/80-gpu.rules": rule,
        "/usr/lib/modprobe.d/x.conf": "options vfio-pci ids=10de:11b4\n",
    }
    by_place = remedies(Machine(changed(snapshot("k4200"), {"files": files})), adopt=True)
    assert {place: remedy.partition(" hides")[0] for place, remedy in by_place.items()} == {
        "/usr/lib/udev/rules.d/80-gpu.rules:1": "`ln -s /dev/null /etc/udev/rules.d/80-gpu.rules`",
        "/usr/lib/modprobe.d/x.conf:1": "`ln -s /dev/null /etc/modprobe.d/x.conf`",
    }

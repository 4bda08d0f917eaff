"""prepare.yml with gpustack_trial, run for real on example hosts."""

from __future__ import annotations

import json
from pathlib import Path

from gpustack.prepare.host.next_boot.trial import ENTRY, MARKER
from gpustack.prepare.host.own_files import GRUB, TRIAL_ENTRY, TRIAL_UNIT
from gpustack_demo.examples import grub
from gpustack_demo.examples.boot import boot
from support.playbook_place import Place, drivers, tree


def there(root: Path, *paths: str) -> list[str]:
    return [path for path in paths if (root / path.lstrip("/")).exists()]


def arguments(root: Path) -> list[str]:
    return (root / "proc/cmdline").read_text(encoding="utf-8").split()


def break_with(root: Path, *panics: str) -> None:
    path = root / ".example/machine.json"
    machine = {**json.loads(path.read_text(encoding="utf-8")), "panics_with": panics}
    path.write_text(json.dumps(machine), encoding="utf-8")


def test_a_host_that_comes_back_right_keeps_the_new_arguments(place: Place) -> None:
    root = place.add("talk")
    before = tree(root)
    run = place.play("prepare", "--check", gpustack_reboot=True, gpustack_trial=True)
    assert run.code == 0, run.output
    assert "reboot with the new kernel arguments, once" in run.output
    assert tree(root) == before
    run = place.play("prepare", gpustack_reboot=True, gpustack_trial=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"vfio-pci"}
    assert MARKER in arguments(root)
    assert there(root, GRUB, TRIAL_ENTRY, TRIAL_UNIT) == [GRUB]
    assert grub.environment(root) == {}
    assert "intel_iommu=on" in grub.default_entry(root).arguments.split()
    after = tree(root)
    run = place.play("prepare", gpustack_reboot=True, gpustack_trial=True)
    assert run.code == 0, run.output
    assert run.count("talk", "changed") == 0
    assert tree(root) == after


def test_a_host_that_does_not_come_up_is_back_in_its_old_boot(place: Place) -> None:
    root = place.add("talk")
    old = arguments(root)
    menu = grub.default_entry(root)
    break_with(root, "intel_iommu=on")
    run = place.play("prepare", gpustack_reboot=True, gpustack_trial=True)
    assert run.code == 2
    assert "talk did not stay up with the new kernel arguments" in run.fatal("talk")
    assert "run `gpustack host apply` (prepare.yml) again" in run.fatal("talk")
    assert arguments(root) == old
    assert grub.environment(root) == {}
    assert grub.default_entry(root) == menu
    break_with(root)  # a second run tries again
    run = place.play("prepare", gpustack_reboot=True, gpustack_trial=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"vfio-pci"}


def test_a_host_that_comes_back_wrong_is_rebooted_into_its_old_boot(place: Place) -> None:
    root = place.add("talk")
    old = arguments(root)
    path = root / ".example/machine.json"
    machine = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**machine, "interrupt_remapping": False}), encoding="utf-8")
    run = place.play("prepare", gpustack_reboot=True, gpustack_trial=True)
    assert run.code == 2
    assert "talk came up with the new kernel arguments, but does not pass verification" in run.output
    assert "GPU123 talk" in run.output
    assert "has been rebooted into its old boot" in run.output
    assert arguments(root) == old
    assert there(root, GRUB) == []


def test_without_leave_to_reboot_the_run_says_how_it_is_tried_by_hand(place: Place) -> None:
    root = place.add("talk")
    run = place.play("prepare", gpustack_trial=True)
    assert run.code == 0, run.output
    assert "grub-reboot gpustack-trial" in run.output
    assert grub.environment(root) == {}
    grub.write_environment(root, {"next_entry": ENTRY})
    boot(root)
    (root / "sys/bus/pci/devices/0000:84:00.0/driver").unlink()
    run = place.play("prepare")
    assert "reboots into its old boot when the time of the trial is over" in run.output, run.output
    grub.write_environment(root, {"next_entry": ENTRY})
    boot(root)
    assert MARKER in arguments(root)
    run = place.play("verify")
    assert "GPU214" in run.output
    run = place.play("prepare", gpustack_command_prefix=[])
    assert "only commands on it can make the trial permanent" in run.fatal("talk")
    assert there(root, GRUB) == []
    run = place.play("prepare")  # makes it permanent, with no other reboot
    assert run.code == 0, run.output
    assert there(root, GRUB, TRIAL_ENTRY, TRIAL_UNIT) == [GRUB]
    assert run.output.count("talk: ready,") == 2


def test_undo_takes_a_trial_that_fell_back_away(place: Place) -> None:
    root = place.add("talk")
    before = {path: content for path, (_, _, content) in tree(root).items() if path.startswith(("etc", "boot/grub"))}
    break_with(root, "intel_iommu=on")
    assert place.play("prepare", gpustack_reboot=True, gpustack_trial=True).code == 2
    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    after = {path: content for path, (_, _, content) in tree(root).items() if path.startswith(("etc", "boot/grub"))}
    assert after == before

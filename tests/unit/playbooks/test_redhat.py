"""Hosts of the RHEL family, whose grubby and dracut are stand-ins: prepared, verified and given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from support.playbook_place import SPEC, Place, drivers, tree

ARGUMENTS = {"intel_iommu=on", "iommu=pt"}


def entries(root: Path) -> list[set[str]]:
    """The arguments of every boot entry, as GRUB will have them."""
    return [set(entry["arguments"].split()) for entry in collect(str(root))["boot"]["entries"]]


def configuration(root: Path) -> dict[str, object]:
    """Kind, mode and content of everything that an administrator could have written, and of the boot entries."""
    prefixes = ("etc", "boot/loader", "boot/grub2", "usr/lib/dracut", "usr/lib/modprobe.d", "var/lib")
    return {path: (entry[0], entry[2]) for path, entry in tree(root).items() if path.startswith(prefixes)}


@pytest.mark.parametrize("example", ["rhel9", "rhel8"])
def test_a_host_of_the_rhel_family_there_and_back(place: Place, example: str) -> None:
    root = place.add(example)
    before = configuration(root)
    assert drivers(root) == {"nouveau", "snd_hda_intel"}

    run = place.play("prepare", "--check", "--diff")
    assert run.code == 0, run.output
    assert configuration(root) == before
    assert "grubby --update-kernel=ALL --args=intel_iommu=on iommu=pt --no-etc-grub-update" in run.output

    # Everything is in place, and can be looked at, before any reboot.
    run = place.play("prepare")
    assert run.code == 0, run.output
    assert all(arguments >= ARGUMENTS for arguments in entries(root))
    assert len(entries(root)) == (2 if example == "rhel9" else 1)
    assert 'rhgb quiet intel_iommu=on iommu=pt"\n' in (root / "etc/default/grub").read_text(encoding="utf-8")
    cmdline = (root / "etc/kernel/cmdline").read_text(encoding="utf-8")  # on RHEL 8, created before grubby does it
    assert cmdline.endswith(" rhgb quiet intel_iommu=on iommu=pt\n")
    if example == "rhel8":
        entry = next((root / "boot/loader/entries").glob("*.conf")).read_text(encoding="utf-8")
        assert "options $kernelopts $tuned_params\n" in entry
    assert drivers(root) == {"nouveau", "snd_hda_intel"}

    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert f"{example}: ready," in run.output
    assert drivers(root) == {"vfio-pci"}
    prepared = tree(root)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert run.count(example, "changed") == 0
    assert tree(root) == prepared

    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    assert configuration(root) == before


def test_one_of_two_cards_by_address(place: Place) -> None:
    place.spec(SPEC.replace('product: "11b4"}', 'product: "11b4", addresses: ["0000:84:00.0"]}'))
    root = place.add("rhel9")
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    drivers = {f["address"]: f["driver"] for f in collect(str(root))["pci"] if f["vendor"] == "10de"}
    assert drivers == {
        "0000:84:00.0": "vfio-pci",
        "0000:84:00.1": "vfio-pci",
        "0000:88:00.0": "nouveau",
        "0000:88:00.1": "snd_hda_intel",
    }


@pytest.mark.parametrize("tags", [("--tags", "commands"), ("--skip-tags", "files")])
def test_no_command_runs_while_tags_leave_out_the_files(place: Place, tags: tuple[str, str]) -> None:
    root = place.add("rhel9")
    before = tree(root)
    run = place.play("prepare", *tags)
    assert run.code == 2
    assert "rhel9: no command is run, because this run leaves out the files of its plan" in run.fatal("rhel9")
    assert tree(root) == before  # a later undo would have no record of grubby's arguments
    assert place.play("prepare", "--tags", "files").code == 0
    assert place.play("prepare", *tags).code == 0
    assert all(arguments >= ARGUMENTS for arguments in entries(root))
    if tags[1] == "commands":
        after = tree(root)
        run = place.play("undo", *tags)
        assert "no command is run, because this run leaves out the files of its plan" in run.fatal("rhel9")
        assert tree(root) == after

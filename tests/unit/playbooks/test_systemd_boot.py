"""A host that systemd-boot starts, whose kernel-install is a stand-in: prepared, verified and given back."""

from __future__ import annotations

from pathlib import Path

from gpustack.hosts.facts.collector import collect
from support.playbook_place import Place, drivers, tree

ARGUMENTS = {"intel_iommu=on", "iommu=pt"}


def entries(root: Path) -> list[set[str]]:
    """The arguments of every boot entry."""
    return [set(entry["arguments"].split()) for entry in collect(str(root))["boot"]["entries"]]


def configuration(root: Path) -> dict[str, object]:
    """Kind, mode and content of everything but what runs and the initramfs images."""
    prefixes = ("etc", "boot", "usr/lib/modprobe.d", "var/lib")
    files = {path: (entry[0], entry[2]) for path, entry in tree(root).items() if path.startswith(prefixes)}
    return {path: entry for path, entry in files.items() if "initrd.img" not in path}


def test_there_and_back(place: Place) -> None:
    root = place.add("sdboot")
    before = configuration(root)
    cmdline = root / "etc/kernel/cmdline"
    assert drivers(root) == {"nouveau", "snd_hda_intel"}

    run = place.play("prepare", "--check", "--diff")
    assert run.code == 0, run.output
    assert configuration(root) == before
    assert "kernel-install add 6.1.0-40-amd64 /boot/vmlinuz-6.1.0-40-amd64" in run.output

    # Everything is in place, and has been looked at, before any reboot.
    run = place.play("prepare")
    assert run.code == 0, run.output
    assert "sdboot: the next boot has its arguments" in run.output
    assert len(entries(root)) == 2
    assert all(arguments >= ARGUMENTS for arguments in entries(root))
    assert cmdline.read_text(encoding="utf-8").endswith(" ro quiet intel_iommu=on iommu=pt\n")
    assert drivers(root) == {"nouveau", "snd_hda_intel"}

    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert "sdboot: ready," in run.output
    assert drivers(root) == {"vfio-pci"}
    prepared = tree(root)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert run.count("sdboot", "changed") == 0
    assert tree(root) == prepared

    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    assert configuration(root) == before


def test_entries_that_were_not_made_anew_keep_the_host_from_its_reboot(place: Place) -> None:
    root = place.add("sdboot", gpustack_command_prefix=["true"])
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code != 0
    assert "not rebooted: its commands have run, and its next boot would not have its arguments" in run.output
    assert "GPU205" in run.output
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    assert not any(arguments & ARGUMENTS for arguments in entries(root))


def test_a_file_that_was_there_stays(place: Place) -> None:
    root = place.add("sdboot")
    cmdline = root / "etc/kernel/cmdline"
    entry = next((root / "boot/efi/loader/entries").glob("*.conf")).read_text(encoding="utf-8")
    options = next(line for line in entry.splitlines() if line.startswith("options"))
    text = f"{options.removeprefix('options').split(' systemd.machine_id')[0].strip()}   \n"
    cmdline.write_text(text, encoding="utf-8")
    before = configuration(root)
    for playbook in ("prepare", "undo"):
        run = place.play(playbook)
        assert run.code == 0, run.output
        assert ("iommu=pt" in cmdline.read_text(encoding="utf-8")) == (playbook == "prepare")
    assert configuration(root) == before

"""undo.yml, run for real on example hosts: they are as they were before prepare.yml."""

from __future__ import annotations

import shutil
import sys

from gpustack.hosts.facts.collector import collect
from gpustack.prepare.host.own_files import JOURNAL, MODPROBE, SCRIPT
from gpustack_demo.examples.boot import boot
from support.playbook_place import Place, configuration, drivers, tree

IDENTICAL = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4", addresses: ["0000:84:00.0"]}}
hosts:
  "talk*": [k4200]
"""


def test_a_prepared_host_is_given_back(place: Place) -> None:
    root = place.add("talk")
    shutil.rmtree(root / "etc/modules-load.d")  # made by prepare.yml, and so removed by undo.yml
    shutil.rmtree(root / "etc/initramfs-tools/scripts/init-top")
    before = configuration(root)
    place.spec(IDENTICAL)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    by_address = {f["address"]: f["driver"] for f in collect(str(root))["pci"] if f["vendor"] == "10de"}
    assert by_address == {
        "0000:84:00.0": "vfio-pci",
        "0000:84:00.1": "vfio-pci",
        "0000:88:00.0": "nouveau",
        "0000:88:00.1": "snd_hda_intel",
    }
    assert (root / SCRIPT.lstrip("/")).exists()
    prepared = tree(root)

    run = place.play("undo", "--check", "--diff", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert tree(root) == prepared
    assert f"--- before: {MODPROBE} (mode 0644)" in run.output
    assert "would run: " in run.output

    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert "talk: as before gpustack," in run.output
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    assert configuration(root) == before
    after = tree(root)
    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert run.count("talk", "changed") == 0
    assert tree(root) == after


def test_without_a_reboot_the_run_says_that_one_is_needed(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    run = prepared_place.play("undo")
    assert run.code == 0, run.output
    assert "talk needs a reboot before the undo is complete" in run.output
    assert drivers(root) == {"vfio-pci"}
    assert not (root / "var/lib/gpustack").exists()
    boot(root)
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    run = prepared_place.play("undo")
    assert run.count("talk", "changed") == 0
    assert "needs a reboot" not in run.output


def test_an_undo_whose_command_fails_is_finished_by_the_next(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    good = prepared_place.variables["talk"]["gpustack_command_prefix"]
    prepared_place.variables["talk"]["gpustack_command_prefix"] = ["/bin/false"]
    run = prepared_place.play("undo", gpustack_reboot=True)
    assert run.code == 2
    assert not (root / JOURNAL.lstrip("/")).exists()  # the menu is generated before the first change
    script = "import subprocess, sys; sys.exit('update-initramfs' in sys.argv or subprocess.call(sys.argv[1:]))"
    prepared_place.variables["talk"]["gpustack_command_prefix"] = [sys.executable, "-c", script, *good]
    run = prepared_place.play("undo", gpustack_reboot=True)
    assert run.code == 2
    assert (root / JOURNAL.lstrip("/")).exists()
    prepared_place.variables["talk"]["gpustack_command_prefix"] = good
    run = prepared_place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    assert not (root / "var/lib/gpustack").exists()


def test_a_file_that_was_changed_by_hand_is_named_and_left(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    path = root / MODPROBE.lstrip("/")
    text = path.read_text(encoding="utf-8").replace("# The devices", "blacklist pcspkr\n# The devices")
    path.write_text(text, encoding="utf-8")
    run = prepared_place.play("undo")
    assert run.code == 0, run.output
    assert f"GPU150 talk {MODPROBE}" in run.output
    assert path.read_text(encoding="utf-8") == text
    run = prepared_place.play("undo", gpustack_force=True, gpustack_reboot=True)
    assert run.code == 0, run.output
    assert not path.exists()
    assert drivers(root) == {"nouveau", "snd_hda_intel"}


def test_without_the_tag_reboot_all_but_the_reboot_is_undone(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    run = prepared_place.play("undo", "--skip-tags", "reboot", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"vfio-pci"}
    assert "intel_iommu" not in (root / "boot/grub/grub.cfg").read_text(encoding="utf-8")
    run = prepared_place.play("undo", "--tags", "reboot", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert "talk: as before gpustack," in run.output


def test_files_alone_are_undone_until_the_next_run(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    run = prepared_place.play("undo", "--tags", "files", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert (root / JOURNAL.lstrip("/")).exists()
    assert not (root / MODPROBE.lstrip("/")).exists()
    run = prepared_place.play("undo", gpustack_reboot=True)
    assert "talk: as before gpustack," in run.output, run.output

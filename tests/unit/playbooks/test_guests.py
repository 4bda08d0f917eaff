"""A host on which guests run is not rebooted unless told otherwise."""

from __future__ import annotations

from pathlib import Path

from support.playbook_place import Place, drivers, tree


def run_guest(root: Path) -> None:
    """What libvirt keeps of a guest that runs."""
    directory = root / "run/libvirt/qemu"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "instance-0000000a.xml").write_text("<domstatus state='running'/>\n", encoding="utf-8")


def test_no_reboot_under_running_guests(place: Place) -> None:
    root = place.add("talk")
    run_guest(root)
    before = tree(root)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 2
    assert tree(root) == before
    assert "instances run there: instance-0000000a" in run.fatal("talk")
    run = place.play("prepare", gpustack_reboot=True, gpustack_ignore_guests=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"vfio-pci"}
    run_guest(root)
    before = tree(root)
    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 2
    assert tree(root) == before
    assert "instances run there: instance-0000000a" in run.fatal("talk")


def test_a_guest_that_comes_while_the_commands_run(place: Place) -> None:
    root = place.add("talk")
    guest = root / "run/libvirt/qemu/instance-0000000b.xml"
    prefix = place.variables["talk"]["gpustack_command_prefix"]
    arrival = ["sh", "-c", f'mkdir -p {guest.parent}; touch {guest}; exec "$@"', "sh"]
    place.variables["talk"]["gpustack_command_prefix"] = [*arrival, *prefix]
    before = drivers(root)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 2
    assert "instances run there: instance-0000000b" in run.fatal("talk")
    assert run.count("talk", "changed") > 0
    assert drivers(root) == before

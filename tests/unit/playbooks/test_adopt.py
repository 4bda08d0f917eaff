"""A host that was set up by hand, for real: refused, taken over, verified, and given back to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.prepare.host.own_files import ADOPTED
from gpustack_demo.examples.handmade import hand_made_host
from gpustack_demo.examples.host import write_host
from support.playbook_place import Place, configuration, drivers, tree


@pytest.fixture
def handmade(place: Place, tmp_path: Path) -> Path:
    """The host ``talk`` of the inventory, as guides have left it; pci-stub has its cards."""
    place.templates = tmp_path / "templates"
    place.templates.mkdir()
    write_host(place.templates / "talk", hand_made_host("talk"))
    (place.templates / "talk/etc/rc.local").chmod(0o755)
    root = place.add("talk")
    assert drivers(root) == {"pci-stub"}
    return root


def test_a_hand_made_host_is_taken_over_and_given_back(place: Place, handmade: Path) -> None:
    before = configuration(handmade)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 2
    assert "GPU135 talk /etc/initramfs-tools/modules:2" in run.output
    assert configuration(handmade) == before

    run = place.play("prepare", "--check", "--diff", gpustack_adopt=True)
    assert run.code == 0, run.output
    assert "-pci_stub ids=10de:11b4,10de:0e0a" in run.output
    assert configuration(handmade) == before

    run = place.play("prepare", gpustack_reboot=True, gpustack_adopt=True)
    assert run.code == 0, run.output
    assert "talk: ready," in run.output
    assert drivers(handmade) == {"vfio-pci"}
    assert (handmade / "etc/rc.local").stat().st_mode & 0o777 == 0o755
    assert (handmade / ADOPTED.lstrip("/")).stat().st_mode & 0o777 == 0o600
    assert not (handmade / "etc/driverctl.d/0000:84:00.1").exists()
    prepared = tree(handmade)
    run = place.play("prepare", gpustack_reboot=True, gpustack_adopt=True)
    assert run.count("talk", "changed") == 0, run.output
    assert tree(handmade) == prepared

    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert configuration(handmade) == before
    assert drivers(handmade) == {"pci-stub"}
    run = place.play("undo", gpustack_reboot=True)
    assert run.count("talk", "changed") == 0, run.output


def test_a_link_in_the_place_of_a_file_is_left(place: Place, handmade: Path) -> None:
    (handmade / "etc/modules").rename(handmade / "etc/modules.real")
    (handmade / "etc/modules").symlink_to("modules.real")
    before = configuration(handmade)
    run = place.play("prepare", gpustack_adopt=True)
    assert run.code == 0, run.output
    after = configuration(handmade)
    assert (handmade / "var/lib/gpustack/adopted").exists()
    assert [before[name] == after[name] for name in ("etc/modules", "etc/modules.real")] == [True, True]

"""prepare.yml with gpustack_live on an example host whose sysfs answers: a card is bound without a reboot."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack_demo.examples.boot import boot
from gpustack_demo.examples.live import LiveKernel
from support import warm
from support.playbook_place import SPEC, Place, drivers, tree

FIRST = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4", addresses: ["0000:84:00.0"]}}
hosts: {"talk*": [k4200]}
"""
CARD, AUDIO = "0000:88:00.0", "0000:88:00.1"


@pytest.fixture(scope="module")
def one_card(templates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The talk's host with one of its two cards prepared, and rebooted."""
    place = Place(path=tmp_path_factory.mktemp("one-card"), templates=templates)
    place.add("talk")
    place.spec(FIRST)
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    return place.path / "roots"


@pytest.fixture
def kernel(place: Place, one_card: Path) -> Iterator[LiveKernel]:
    """That host, with a kernel that answers, and a spec that now names both cards."""
    place.templates = one_card
    root = place.add("talk")
    place.spec(SPEC)
    with LiveKernel(root) as running:
        yield running


@pytest.fixture
def host(kernel: LiveKernel) -> Path:
    """The directory of that host."""
    return kernel.root


def pci(root: Path) -> dict[str, dict[str, Any]]:
    return {entry["address"]: entry for entry in collect(str(root))["pci"]}


def opens(root: Path, node: str) -> None:
    """A process that has a device node open."""
    directory = root / "proc/4242"
    (directory / "fd").mkdir(parents=True)
    (directory / "fd/7").symlink_to(node)
    (directory / "comm").write_text("Xorg\n", encoding="utf-8")
    (directory / "maps").touch()


def test_a_card_is_added_without_a_reboot_and_stays_after_one(place: Place, host: Path, kernel: LiveKernel) -> None:
    booted = collect(str(host))["kernel"]["booted_at"]
    assert pci(host)[CARD]["driver"] == "nouveau"
    assert pci(host)[CARD]["uses"] == {"drm": ["card1"]}
    before = tree(host)
    run = place.play("prepare", "--check", "--diff", gpustack_live=True)
    assert run.code == 0, run.output
    assert tree(host) == before

    run = place.play("prepare", gpustack_live=True)
    assert run.code == 0, run.output
    assert "talk: ready," in run.output
    assert drivers(host) == {"vfio-pci"}
    assert pci(host)[CARD]["uses"] == {}
    assert collect(str(host))["kernel"]["booted_at"] == booted
    repeat = place.play("prepare", gpustack_live=True)
    assert repeat.count("talk", "changed") == 0, repeat.output

    kernel.stop()
    boot(host)
    assert drivers(host) == {"vfio-pci"}
    run = place.play("verify")
    assert run.code == 0, run.output


def test_what_holds_a_card_is_named_and_the_card_is_left_alone(place: Place, host: Path) -> None:
    opens(host, "/dev/dri/card1")
    run = place.play("prepare", gpustack_live=True)
    assert run.code == 0, run.output
    assert f"GPU181 talk {CARD}" in run.output
    assert "process Xorg (4242) has /dev/dri/card1 open" in run.output
    assert "talk needs a reboot" in run.output
    functions = pci(host)
    assert (functions[CARD]["driver"], functions[AUDIO]["driver"]) == ("nouveau", "snd_hda_intel")
    assert functions[CARD]["driver_override"] is None


def test_a_card_that_was_bound_live_is_given_back(place: Place, host: Path, kernel: LiveKernel) -> None:
    assert place.play("prepare", gpustack_live=True).code == 0
    run = place.play("undo")
    assert run.code == 0, run.output
    assert f"{CARD} is on vfio-pci, which is no longer wanted" in run.output
    kernel.stop()
    boot(host)
    assert drivers(host) == {"nouveau", "snd_hda_intel"}
    assert place.play("undo").count("talk", "changed") == 0


def module(root: Path, tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    """Run the module by itself, as Ansible would."""
    functions = [
        {"address": AUDIO, "before": "snd_hda_intel", "vendor": "10de", "product": "0e0a", "pci_class": "040300"},
        {"address": CARD, "before": "nouveau", "vendor": "10de", "product": "11b4", "pci_class": "030000"},
    ]
    card = {"card": CARD, "driver": "vfio-pci", "functions": arguments.pop("functions", functions)}
    values = {"root": str(root), "cards": [card], **arguments}
    process = warm.run(
        [
            str(Path(sys.executable).with_name("ansible")),
            *("-i", "localhost,", "-c", "local", "localhost"),
            *("-e", f"ansible_python_interpreter={warm.outside()}"),
            *("-m", "nova_gpustack.passthrough.gpustack_bind", "-a", json.dumps(values)),
        ],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path)},
    )
    output = process.stdout.partition("=>")[2].strip()
    result: dict[str, Any] = json.loads(output[: output.rindex("}") + 1])
    return result


def test_what_came_since_the_plan_is_seen_right_before(host: Path, tmp_path: Path) -> None:
    opens(host, "/dev/snd/controlC1")
    sound = host / "sys/class/sound"
    place = next(sound.iterdir()).resolve().parent
    (place / "controlC1").mkdir()
    (sound / "controlC1").symlink_to(os.path.relpath(place / "controlC1", sound))
    result = module(host, tmp_path)
    assert "is left alone" in result["msg"]
    assert "process Xorg (4242) has /dev/snd/controlC1 open" in result["msg"]
    assert pci(host)[AUDIO]["driver"] == "snd_hda_intel"


def test_another_device_at_the_address_is_left_alone(host: Path, tmp_path: Path) -> None:
    target = {"address": CARD, "before": "nouveau", "vendor": "10de", "product": "ffff", "pci_class": "030000"}
    result = module(host, tmp_path, functions=[target])
    assert "another device" in result["msg"]
    assert pci(host)[CARD]["driver"] == "nouveau"


def test_an_unbind_that_does_not_return_is_reported(host: Path, tmp_path: Path) -> None:
    """A named pipe that nobody reads: whoever opens it waits, as in a driver that waits for its users."""
    unbind = host / "sys/bus/pci/drivers/snd_hda_intel/unbind"
    unbind.unlink()
    os.mkfifo(unbind)
    result = module(host, tmp_path, timeout=3)
    assert f"taking {AUDIO} from snd_hda_intel has not returned after 3 s" in result["msg"]
    assert pci(host)[CARD]["driver"] == "nouveau"
    with unbind.open(encoding="utf-8"):  # lets the process end that still waits
        pass


def test_a_card_that_the_new_driver_does_not_take_goes_back(host: Path, tmp_path: Path) -> None:
    (host / "sys/bus/pci/devices" / CARD / "iommu_group").unlink()
    result = module(host, tmp_path, timeout=30)
    assert "vfio-pci did not take 0000:88:00.0" in result["msg"]
    assert f"Restored: {CARD}, {AUDIO}" in result["msg"]
    functions = pci(host)
    assert (functions[CARD]["driver"], functions[AUDIO]["driver"]) == ("nouveau", "snd_hda_intel")
    assert functions[AUDIO]["driver_override"] is None

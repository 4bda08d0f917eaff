"""verify.yml: it passes on a host that is right, and says what is wrong with one that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack.prepare.host.own_files import GRUB, HOOK, MODPROBE
from gpustack_demo.examples.initramfs import update_initramfs
from support.playbook_place import SPEC, Place, Run, tree


def test_a_prepared_host_passes_and_is_not_touched(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    before = tree(root)
    run = prepared_place.play("verify", "-v")
    assert run.code == 0, run.output
    assert "talk: ready, 2 GPUs, " in run.output
    assert "duplicate dict key" not in run.output, "Ansible warns of merged YAML mappings that override a key"
    assert "\n  ok       0000:84:00.0: its IOMMU group is viable: group " in run.output
    assert run.count("talk", "changed") == 0
    assert tree(root) == before


def _old_initramfs(root: Path) -> None:
    hook, modprobe = (root / path.lstrip("/") for path in (HOOK, MODPROBE))
    contents = hook.read_bytes(), modprobe.read_bytes()
    hook.unlink()
    modprobe.unlink()
    update_initramfs(root, ["-u", "-k", "6.1.0-37-amd64"])
    hook.write_bytes(contents[0])
    hook.chmod(0o755)
    modprobe.write_bytes(contents[1])


def _damaged_initramfs(root: Path) -> None:
    image = root / "boot/initrd.img-6.1.0-40-amd64"
    image.write_bytes(image.read_bytes()[:-700])


def _host_driver(root: Path) -> None:
    device = (root / "sys/bus/pci/devices/0000:88:00.1").resolve()
    (root / "sys/bus/pci/drivers/snd_hda_intel").mkdir()
    (device / "driver").unlink()
    (device / "driver").symlink_to(root / "sys/bus/pci/drivers/snd_hda_intel")


def _argument_missing(root: Path) -> None:
    path = root / "proc/cmdline"
    path.write_text(path.read_text(encoding="utf-8").replace(" intel_iommu=on", ""), encoding="utf-8")


def _iommu_off(root: Path) -> None:
    for unit in (root / "sys/class/iommu").iterdir():
        unit.unlink()


def _memory_held(root: Path) -> None:
    path = root / "proc/iomem"
    path.write_text(
        path.read_text(encoding="utf-8").replace(
            "c8000000-c8ffffff : 0000:84:00.0", "c8000000-c8ffffff : 0000:84:00.0\n  c8000000-c8ffffff : BOOTFB"
        ),
        encoding="utf-8",
    )


def _file_changed(root: Path) -> None:
    with (root / GRUB.lstrip("/")).open("a", encoding="utf-8") as stream:
        stream.write("# somebody was here\n")


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "old-initramfs": (_old_initramfs, "initrd.img-6.1.0-37-amd64"),
    "damaged-initramfs": (_damaged_initramfs, "initrd.img-6.1.0-40-amd64"),
    "host-driver": (_host_driver, "0000:88:00.1"),
    "argument-missing": (_argument_missing, "intel_iommu=on"),
    "iommu-off": (_iommu_off, "IOMMU"),
    "memory-held": (_memory_held, "BOOTFB"),
    "file-changed": (_file_changed, GRUB),
}


@pytest.fixture(scope="module")
def verified(prepared: Path, templates: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run over hosts that are broken in different ways, one that was never prepared, and one that is right."""
    place = Place(path=tmp_path_factory.mktemp("broken"), templates=templates)
    place.spec(SPEC)
    place.add("talk", "talk-new")
    place.templates = prepared
    for name, (break_it, _) in BROKEN.items():
        break_it(place.add("talk", f"talk-{name}"))
    place.add("talk")
    return place.play("verify")


@pytest.mark.parametrize("name", BROKEN)
def test_the_error_is_reported(verified: Run, name: str) -> None:
    assert f"talk-{name}: NOT ready" in verified.output
    assert BROKEN[name][1] in verified.fatal(f"talk-{name}")


def test_a_host_that_is_right_passes_beside_them(verified: Run) -> None:
    assert verified.code == 2
    assert "talk-new: NOT ready" in verified.output
    assert "talk: ready," in verified.output
    assert verified.count("talk", "failed") == 0
    assert "Traceback" not in verified.output

"""pci-stub in place of vfio-pci: loaded by the initramfs with its ids, or told them by the kernel's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.linux.initramfs import read_initramfs
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from support.playbook_place import SPEC, Place, drivers

RELEASE = "6.1.0-40-amd64"


def with_pci_stub_built_in(name: str) -> hosts.Machine:
    """The talk's host with kernels that have pci-stub built in."""
    machine = hosts.talk_host(name)
    kernels = tuple(
        kernel.model_copy(
            update={
                "modules": tuple(
                    module.model_copy(update={"builtin": module.builtin or module.name == "pci_stub"})
                    for module in kernel.modules
                )
            }
        )
        for kernel in machine.kernels
    )
    return machine.model_copy(update={"kernels": kernels})


@pytest.mark.parametrize("built_in", [False, True])
def test_pci_stub_from_spec_to_boot(place: Place, tmp_path: Path, built_in: bool) -> None:
    if built_in:
        (tmp_path / "made").mkdir()
        write_host(tmp_path / "made/talk", with_pci_stub_built_in("talk"))
        place.templates = tmp_path / "made"
    place.spec(SPEC.replace('product: "11b4"}', 'product: "11b4"}, driver: pci-stub'))
    root = place.add("talk")
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert "talk: ready," in run.output
    assert drivers(root) == {"pci-stub"}
    configured = "pci-stub.ids=10de:0e0a,10de:11b4" in collect(str(root))["kernel"]["command_line"].split()
    loaded = read_initramfs(str(root / f"boot/initrd.img-{RELEASE}"))["files"]["/conf/modules"]["text"].split()
    assert (configured, "pci_stub" in loaded) == (built_in, not built_in)
    repeat = place.play("prepare", gpustack_reboot=True)
    assert repeat.count("talk", "changed") == 0

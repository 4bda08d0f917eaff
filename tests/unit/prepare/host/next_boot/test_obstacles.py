"""What the next kernel lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.next_boot.obstacles import findings, kernel_findings
from support.host_samples import snapshot

MODULES = {"igb": "module", "vfio_pci": "module"}


def codes(
    next_modules: dict[str, str], *, initramfs: str | None = "/boot/initrd.img-2", drivers: tuple[str, ...] = ()
) -> list[str]:
    """The findings about Linux 2, which boots after Linux 1 and has these modules."""
    raw = snapshot("k4200")
    card = {**raw["pci"][0], "address": "0000:99:00.0", "driver": "igb", "driver_module": "igb"}
    card["uses"] = {"net": [{"name": "eno1", "state": "up", "uppers": [], "routes": "default"}], "drivers": drivers}
    raw["pci"].append(card)
    raw["kernel"]["release"] = "1"
    raw["boot"]["kernels"] = [
        {"release": release, "modules": modules, "initramfs": f"/boot/initrd.img-{release}"}
        for release, modules in (("1", {**MODULES, **dict.fromkeys(drivers, "module")}), ("2", next_modules))
    ]
    after: Any = SimpleNamespace(kernel="2", place="/boot/grub/grub.cfg", initramfs=initramfs)
    return [f.code for f in kernel_findings(parse_host(raw, "test"), after, ("vfio_pci",))]


def test_another_kernel_with_all_drivers_is_named_only() -> None:
    assert codes(MODULES) == ["GPU240"]


def test_a_kernel_without_a_driver_in_use_or_vfio_or_initramfs_blocks() -> None:
    assert codes({"vfio_pci": "module"}) == ["GPU240", "GPU241"]
    assert codes({"igb": "module"}) == ["GPU240", "GPU241"]
    assert codes(MODULES, initramfs=None) == ["GPU240", "GPU241"]


def test_a_driver_between_card_and_interface_is_needed_too() -> None:
    assert codes(MODULES, drivers=("virtio_net",)) == ["GPU240", "GPU241"]
    assert codes({**MODULES, "virtio_net": "builtin"}, drivers=("virtio_net",)) == ["GPU240"]


@pytest.mark.parametrize(
    ("local", "count"), [("", 1), (" BOOTIF=01-de-ad-be-ef-00-02", 1), (" BOOTIF=01-de-ad-be-ef-00-01", 0)]
)
def test_an_argument_of_pxelinux_in_the_own_menu_is_no_network_boot(local: str, count: int) -> None:
    """An installer copies it from its own boot."""
    raw = snapshot("k4200")
    raw["kernel"]["command_line"] += " BOOTIF=01-de-ad-be-ef-00-01"
    for entry in raw["boot"]["entries"]:
        entry["arguments"] += local
    assert [f.code for f in findings(parse_host(raw, "test"), ())] == ["GPU239"] * count

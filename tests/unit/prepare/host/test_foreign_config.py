"""Ids that others wrote count when gpustack decides which devices stay bound."""

from __future__ import annotations

from gpustack.prepare.host.foreign_config import elsewhere
from gpustack.prepare.host.undo import still_kept
from support.prior_setups import machine


def test_undo_leaves_cards_that_ids_of_any_device_bind() -> None:
    host = machine(
        {"/etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:030000:ff0000\n"}
    )
    for function in host.raw["pci"]:
        if function["vendor"] == "10de":
            function["driver"] = "vfio-pci"
    by_others = still_kept(host.host, elsewhere(host.host))
    assert [function.address for function in by_others] == ["0000:84:00.1", "0000:88:00.1"]  # the audio functions

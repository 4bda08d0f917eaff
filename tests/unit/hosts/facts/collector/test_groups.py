"""IOMMU groups and their reserved regions."""

from __future__ import annotations

from pathlib import Path

from gpustack.hosts.facts.collector import collect
from support.sysroot import talk_host


def test_reserved_regions_of_a_gpus_group(tmp_path: Path) -> None:
    regions = "0x000000007b800000 0x000000007b8fffff direct\n0x00000000fee00000 0x00000000feefffff msi\nnonsense\n"
    root = talk_host(tmp_path).write("/sys/kernel/iommu_groups/7/reserved_regions", regions)
    (group,) = (g for g in collect(str(root.path))["iommu"]["groups"] if g["number"] == 7)
    assert group["reserved"] == [
        {"start": 0x7B800000, "end": 0x7B8FFFFF, "type": "direct"},
        {"start": 0xFEE00000, "end": 0xFEEFFFFF, "type": "msi"},
    ]


def test_groups_that_vfio_made_up_are_none(tmp_path: Path) -> None:
    root = talk_host(tmp_path).write("/sys/kernel/iommu_groups/7/name", "vfio-noiommu\n")
    root.write("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
    document = collect(str(root.path))
    assert {e["iommu_group"] for e in document["pci"] if e["address"].startswith("0000:88:00")} == {None}
    assert document["iommu"]["group_count"] == 7
    assert document["iommu"]["no_iommu_mode"] is True

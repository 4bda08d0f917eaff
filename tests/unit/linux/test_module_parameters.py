"""Kernel parameters with lists of values: the last word decides, as in the kernel."""

import pytest

from gpustack.linux.cmdline import CommandLine, argument
from gpustack.linux.module_parameters import INTEL_IOMMU, PASSTHROUGH, contradicts, fulfils, switched, truth, words


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("quiet", None),
        ("intel_iommu=sm_on,on", True),
        ("intel_iommu=onto", None),
        ("intel_iommu=on intel_iommu=off", False),
        ("intel_iommu=off,on", True),
        ("intel_iommu=offline", False),
    ],
)
def test_the_last_word_decides_a_switch(line: str, state: bool | None) -> None:
    assert switched(CommandLine(text=line).arguments, INTEL_IOMMU) is state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("iommu.passthrough=1", True),
        ("iommu=pt iommu.passthrough=0", False),
        ("iommu=pt iommu.passthrough=maybe", True),
        ("iommu=usedac,nopt", None),
    ],
)
def test_a_boolean_sets_the_same_feature(line: str, state: bool | None) -> None:
    assert switched(CommandLine(text=line).arguments, PASSTHROUGH) is state


def test_no_word_counts_after_usedac() -> None:
    assert [*words(argument("iommu=pt,usedac,nopt"))] == ["pt", "usedac"]
    assert [*words(argument("intel_iommu=usedac,on"))] == ["usedac", "on"]


@pytest.mark.parametrize(("text", "value"), [("Yes", True), ("on", True), ("of", False), ("0", False), ("o", None)])
def test_booleans_are_read_by_their_first_letters(text: str, value: bool | None) -> None:
    assert truth(text) is value
    assert truth(None) is None


@pytest.mark.parametrize(
    ("line", "wanted", "holds"),
    [
        ("intel_iommu=sm_on,on", "intel_iommu=on", True),
        ("intel_iommu=on,off", "intel_iommu=on", False),
        ("vfio-pci.ids=10de:11b4,10de:0e0a", "vfio_pci.ids=10DE:0E0A,10de:11b4", True),
        ("vfio-pci.ids=10de:11b4 vfio-pci.ids=10de:0e0a", "vfio-pci.ids=10de:11b4", False),
        ("", "vfio-pci.ids=10de:11b4", False),
        ("quiet splash", "quiet", True),
    ],
)
def test_lines_fulfil_wanted_arguments(line: str, wanted: str, holds: bool) -> None:
    assert fulfils(CommandLine(text=line), wanted) is holds


@pytest.mark.parametrize(
    ("text", "wanted", "against"),
    [
        ("iommu=nopt", "iommu=pt", True),
        ("iommu=off", "iommu=pt", True),
        ("iommu=soft", "iommu=pt", True),
        ("iommu=pt", "iommu=pt", False),
        ("iommu=soft", "intel_iommu=on", False),
        ("intel_iommu=off", "intel_iommu=on", True),
        ("quiet", "splash", False),
    ],
)
def test_arguments_contradict_wanted_ones(text: str, wanted: str, against: bool) -> None:
    assert contradicts(argument(text), wanted) is against

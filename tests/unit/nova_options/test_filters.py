"""Filters that nova-scheduler can't enable, and the correction that a remedy shows."""

from __future__ import annotations

import pytest

from gpustack.nova_options import releases
from gpustack.nova_options.filters import ALL, faults, not_importable, startable

RELEASE = releases.release("2025.2")
PCI = "nova.scheduler.filters.pci_passthrough_filter.PciPassthroughFilter"
COMPUTE = "nova.scheduler.filters.compute_filter.ComputeFilter"


@pytest.mark.parametrize(
    "written",
    [
        ["ComputeFilter", "", "PciPassthroughFilter"],
        ["ComputeFilter", "PciPassthroughFilter # for GPUs"],
        ['["ComputeFilter"', '"PciPassthroughFilter"]'],
        ["ComputeFilter\nPciPassthroughFilter"],
        ["ComputeFilter PciPassthroughFilter"],
        ["ComputeFilter", PCI],
        ["computefilter", "PciPassThroughFilter"],
    ],
)
def test_corrected_lists_start_the_scheduler(written):
    assert any(faults(written, (), RELEASE))
    corrected = startable(written, (), RELEASE)
    assert corrected == ["ComputeFilter", "PciPassthroughFilter"]
    assert not list(faults(corrected, (), RELEASE))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("", None),
        ("PciPassthroughFilter", None),
        (f"{ALL},{PCI}", None),
        (f"{ALL} # all", None),
        ("nova.scheduler.filters.ComputeFilter", COMPUTE),
        ("nova.scheduler.filters.compute.ComputeFilter", COMPUTE),
        (PCI.replace("Passthrough", "PassThrough"), PCI),
        (PCI.replace("Passthrough", "Passthru"), None),
        ("nova.scheduler.filters.retry_filter.RetryFilter", None),
        ("nova.scheduler.filters.PciPassthroughFilter", PCI),
        ("nova.scheduler.filters.pci.PciPassthroughFilter", PCI),
        ("nova.scheduler.filters.standard_filters", ALL),
    ],
)
def test_lines_that_stop_the_scheduler_are_found(line, instead):
    (fault,) = not_importable([ALL, line], RELEASE)
    assert (fault.name, fault.instead) == (line or "''", instead)


@pytest.mark.parametrize("line", [ALL, PCI, COMPUTE, "nova.scheduler.filters.mine.MineFilter", "my.filters.mine"])
def test_lines_that_may_be_importable_are_accepted(line):
    assert not list(not_importable([line], RELEASE))


def test_a_list_is_corrected_beside_lines_that_must_be_replaced():
    assert startable(['["ComputeFilter"', '"ServerGroupAffinityFilter"]'], [f'["{ALL}"]'], RELEASE) == [
        "ComputeFilter",
        "ServerGroupAffinityFilter",
    ]

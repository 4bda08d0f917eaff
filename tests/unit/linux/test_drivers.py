"""Which drivers hold a function for passthrough, and which for the host."""

from __future__ import annotations

import pytest

from gpustack.hosts.facts.collector.open_by import FOR_GUESTS
from gpustack.linux.drivers import is_held, is_host_driver, is_passthrough_driver

PASSTHROUGH = ("vfio-pci", "vfio_pci", "pci-stub", "mlx5_vfio_pci", "nvgrace_gpu_vfio_pci")
HOST = ("nouveau", "nvidia", "xhci_hcd", "i40e")


@pytest.mark.parametrize("driver", PASSTHROUGH)
def test_passthrough_drivers(driver):
    assert is_passthrough_driver(driver)
    assert not is_host_driver(driver)


@pytest.mark.parametrize("driver", HOST)
def test_host_drivers(driver):
    assert is_host_driver(driver)
    assert not is_passthrough_driver(driver)


def test_no_driver_and_a_port_driver_are_neither():
    assert not any(f(driver) for f in (is_host_driver, is_passthrough_driver) for driver in (None, "pcieport"))


@pytest.mark.parametrize("driver", [*PASSTHROUGH, *HOST, "pcieport"])
def test_the_collector_answers_the_same(driver):
    assert (FOR_GUESTS.fullmatch(driver) is None) == is_host_driver(driver)


@pytest.mark.parametrize(
    ("driver", "assigned", "expected"),
    [
        ("vfio-pci", "vfio-pci", True),
        ("vfio_pci", "vfio-pci", True),
        ("vfio-pci", "pci-stub", True),  # libvirt moves it there
        ("pci-stub", "vfio-pci", False),
        ("vfio-pci", "nvgrace_gpu_vfio_pci", False),
        ("nvgrace_gpu_vfio_pci", "vfio-pci", False),
        ("nouveau", "vfio-pci", False),
        (None, "vfio-pci", False),
    ],
)
def test_which_driver_counts_as_the_assigned_one(driver, assigned, expected):
    assert is_held(driver, assigned) is expected

"""Two hosts of a cloud: moves of instances with a GPU, and failures in the middle of them."""

from __future__ import annotations

import pytest

from .cloud import kept, prerequisites
from .conftest import Lab

# openstacksdk warns of its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]


def test_moves_and_failures(compute_lab: Lab) -> None:
    prerequisites.check()
    with kept.two_hosts(compute_lab) as cloud:
        for compute in cloud.computes:
            assert compute.free()

"""Whether a flavor hides the hypervisor, by any value that Nova takes for true."""

from __future__ import annotations

import pytest

from gpustack.offer.image.model import FlavorNeeds


@pytest.mark.parametrize(
    ("specs", "hidden"),
    [
        ({}, False),
        ({"hw:hide_hypervisor_id": "true"}, True),
        ({"hw:hide_hypervisor_id": " Yes "}, True),
        ({"hide_hypervisor_id": "1"}, True),
        ({"hw:hide_hypervisor_id": "false"}, False),
        ({"hw:hide_hypervisor_id": "false", "hide_hypervisor_id": "on"}, True),
        ({"hw:other": "true"}, False),
    ],
)
def test_values_that_hide_the_hypervisor(specs: dict[str, str], hidden: bool) -> None:
    needs = FlavorNeeds(name="f", models=("m",), vendors=frozenset(), disk=1, extra_specs=specs)
    assert needs.hides_hypervisor is hidden

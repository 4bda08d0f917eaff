"""Facts about vGPUs that older collectors wrote."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.hosts.facts.model import Function
from support.vgpu_hosts import CARDS


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        ({"mediated": ["vGPU type 711"]}, {"vgpu_framework": "vfio", "vgpu_type": "711"}),
        (
            {"mediated": ["aa61"], "mediated_types": ["i915-GVTg_V5_4", "nvidia-63 (GRID P40-1Q)"]},
            {
                "vgpu_framework": "mdev",
                "mediated_devices": [{"uuid": "aa61", "user": "its users are unknown"}],
                "vgpu_types": [{"number": "i915-GVTg_V5_4"}, {"number": "nvidia-63", "name": "GRID P40-1Q"}],
            },
        ),
        ({"mig_instances": 2}, {"mig": {"instances": [{}, {}]}}),
        ({"mediated": [], "mediated_types": [], "mig_instances": None}, {}),
        ({"mediated": 7, "mediated_types": "x", "mig_instances": -1}, {"mig": {"instances": []}}),
    ],
)
def test_snapshots_of_older_collectors_are_read(older: dict[str, Any], expected: dict[str, Any]) -> None:
    ids = {"address": CARDS[0], "vendor": "10de", "product": "25b6", "class": "030200"}
    assert Function.model_validate({**ids, **older}) == Function.model_validate({**ids, **expected})

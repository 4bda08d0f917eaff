"""GPUs that extra specs request, by the aliases of a spec."""

from __future__ import annotations

import pytest

from gpustack.fleet.cards import requested_gpus
from gpustack.spec.load import parse_spec

MATCH = 'match: {vendor: "10de", product: "%s"}'
SPEC = parse_spec(
    f"""
version: 1
models:
  card: {{{MATCH % "11b4"}, alias: k4200}}
  large: {{{MATCH % "25b6"}, vgpu: {{type: A16-8Q}}}}
  small: {{{MATCH % "25b7"}, vgpu: {{type: A16-4Q}}, alias: quarter}}
  tiny: {{{MATCH % "25b8"}, vgpu: {{type: A16-1Q, resource_class: CUSTOM_TINY}}}}
hosts: {{gpu1: [card, large, small, tiny]}}
""",
    "spec",
)
ALIAS, SHARED = "pci_passthrough:alias", "trait:CUSTOM_GPU_MODEL_"


@pytest.mark.parametrize(
    ("specs", "gpus"),
    [
        ({ALIAS: "k4200:2"}, {"k4200": 2}),
        ({"resources:CUSTOM_TINY": "2"}, {"tiny": 2}),
        ({"resources1:CUSTOM_TINY": "1", "resources2:CUSTOM_TINY": "1", ALIAS: "k4200:1"}, {"k4200": 1, "tiny": 2}),
        ({"resources:VGPU": "1", f"{SHARED}QUARTER": "required"}, {"quarter": 1}),
        ({"resources:VGPU": "1"}, {"large": 1, "quarter": 1}),  # Nova takes either
        ({"resources:CUSTOM_OTHER": "1", "resources:VCPU": "2"}, {}),
        ({}, {}),
    ],
)
def test_vgpus_have_the_alias_of_their_model(specs: dict[str, str], gpus: dict[str, int]) -> None:
    assert requested_gpus(SPEC, specs) == gpus

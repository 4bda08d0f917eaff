"""Files of provider_config: each verdict is that of nova/compute/provider_config.py of 2023.1, 2025.2 and 2026.2."""

from __future__ import annotations

import pytest
import yaml

from gpustack.nova_options.provider_config import faults
from gpustack.nova_options.releases import release

META = 'meta: {schema_version: "1.0"}\n'
NODE = META + "providers:\n- identification: {uuid: $COMPUTE_NODE}\n"
ACCEPTED = (
    META,
    'meta: {schema_version: "1.7", more: 1}\nmore: 2\n',
    NODE + "  inventories: {additional: [{CUSTOM_A: {total: 2.0, allocation_ratio: 1.5}}], more: 1}\n",
    NODE + "  traits: {additional: [CUSTOM_T]}\n",
    META + "providers: [{identification: {uuid: 5213b75d-9260-42a6-b236-f39b0fd10561}}]\n",
)
REFUSED = {
    "": "schema_version",
    "meta: {schema_version: 1.0}": "schema_version",
    'meta: {schema_version: "2.0"}': "does not support schema_version 2.0",
    NODE + "  inventories: {additional: [{VCPU: {total: 1}}]}": "VCPU does not begin with CUSTOM_",
    NODE + "  traits: {additional: [HW_CPU_X86_AVX]}": "HW_CPU_X86_AVX does not begin with CUSTOM_",
    NODE + "  inventories: {additional: [{custom_a: {total: 1}}]}": "can't have custom_a",
    NODE + "  inventories: {additional: [{5: {total: 1}}]}": "the key 5 must be text",
    NODE + "  inventories: {additional: [{CUSTOM_A: {reserved: 1}}]}": "lacks total",
    NODE + "  inventories: {additional: [{CUSTOM_A: {total: true}}]}": "total must be of type integer",
    NODE + "  inventories: {additional: [{CUSTOM_A: {total: 2.5}}]}": "total must be of type integer",
    NODE + "  inventories: {additional: {CUSTOM_A: {total: 1}}}": "additional must be of type array",
    NODE + "  traits: {additional: [CUSTOM_A-B]}": "'CUSTOM_A-B' is refused",
    META + "providers: [{identification: {uuid: $COMPUTE_NODE, name: a}}]": "must have one of uuid, name",
    META + "providers: [{identification: {uuid: abc}}]": "must be a UUID or $COMPUTE_NODE",
    META + "providers: [{}]": "providers[0] lacks identification",
    META + "providers:": "providers must be of type array",
    "__source_file: a\n" + META: "__source_file must not be set",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_nova_accepts_a_file(text: str) -> None:
    assert list(faults(yaml.safe_load(text), release("2025.2"))) == []


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
def test_nova_refuses_a_file(text: str, reason: str) -> None:
    assert reason in "; ".join(faults(yaml.safe_load(text), release("2025.2")))

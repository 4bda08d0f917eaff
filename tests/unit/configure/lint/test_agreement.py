"""Aliases, compared with the devices that hosts offer."""

from __future__ import annotations

import pytest

from gpustack.configure.lint import judged
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.releases import release
from support.mediated_hosts import mediated_host, parted

CARD, PARTS, BOTH = '"0000:41:00.0"', '"0000:41:00.[1-2]"', '"0000:41:00.*"'


@pytest.mark.parametrize(
    ("device_type", "address", "actual"),
    [
        ("type-PF", PARTS, "type-VF"),
        ("type-VF", PARTS, ""),
        ("type-VF", CARD, ""),  # Nova takes the virtual functions of the address too
        ("type-PF", CARD, ""),
        ("type-PF", BOTH, ""),
        ("type-PF", '"0000:99:00.0"', ""),  # an entry without a device too
    ],
)
def test_device_types_are_those_of_the_offered_functions(device_type: str, address: str, actual: str) -> None:
    """A card of NVIDIA and its virtual functions have the same ids."""
    pattern = address if "[" not in address else '{"domain": "0000", "bus": "41", "slot": "00", "function": "[1-2]"}'
    text = (
        f'[pci]\nalias = {{"name": "a", "vendor_id": "10de", "product_id": "25b6", "device_type": "{device_type}"}}\n'
        f'device_spec = {{"vendor_id": "10de", "product_id": "25b6", "address": {pattern}}}\n'
    )
    facts = mediated_host(*parted("0000:41:00.0", 2, current="711"))
    configuration = parse_files({"gpu01/nova.conf": text})
    source = Source(label="compute", services=("compute",), configuration=configuration, named=True)
    results = judged(LintSubject(sources=[source], release=release("2025.2"), hosts=[facts]))
    messages = [entry.message for result in results for entry in result.findings if entry.code == "GPU364"]
    assert [message.rpartition(" ")[2] for message in messages] == ([actual] if actual else [])

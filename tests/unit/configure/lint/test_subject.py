"""What the instances of a spec's flavors ask of nova-compute."""

from __future__ import annotations

from gpustack.configure.lint.subject import InstanceShape, about_key
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from gpustack.spec.requests import entries

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {h: [k4200]}
flavors:
  "g{count}":
    model: k4200
    count: [1, 4]
    per_gpu: {vcpus: 8, ram: auto, disk: 10}
    cpu_policy: dedicated
    mem_page_size: 1GB
    numa: {nodes: auto}
  plain:
    {model: k4200, vcpus: 2, ram: 4GiB, disk: 1, tpm: true, extra_specs: {"hw:cpu_policy": mixed,
    "hw:mem_page_size": large}}
"""


def test_each_flavor_has_a_shape_without_what_hosts_decide() -> None:
    pinned = {"cpu_policy": "dedicated", "page_size": "1GB", "nodes": None}
    assert tuple(map(InstanceShape.of, entries(parse_spec(SPEC, "spec")))) == (
        InstanceShape(flavor="g1", gpus=1, vcpus=8, **pinned),
        InstanceShape(flavor="g4", gpus=4, vcpus=32, **pinned),
        InstanceShape(flavor="plain", gpus=1, vcpus=2, ram_mib=4096, cpu_policy="mixed", page_size="large", tpm=True),
    )


def test_a_key_with_a_blank_is_quoted() -> None:
    """Public guides have such lines."""
    assert about_key("alias", " device_type", "device_type", release("2025.2"))["key"] == "' device_type'"
    assert about_key("alias", "device", None, release("2025.2"))["key"] == "device"

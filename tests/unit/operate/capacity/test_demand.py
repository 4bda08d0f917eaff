"""The needs of flavors, as Nova requests them from Placement and checks them in its filters."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.nova_options.releases import release
from gpustack.nova_options.scheduler import Scheduler
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity.demand import demand_of
from gpustack.operate.capacity.model import Demand
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec

SPEC = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, numa_policy: required}
  p100: {match: {vendor: "10de", product: "15f8"}}
hosts: {gpu1: [k4200, p100]}
nova: {release: "2025.2"}
flavors:
  f: {vcpus: 4, ram: 2GiB, disk: 10, FLAVOR}
"""


def needs(spec: Spec, flavor: WantedFlavor, scheduler: Scheduler | None = None) -> Demand:
    return demand_of(spec, flavor.name, flavor.sizes, flavor.extra_specs, flavor.gpus, scheduler)


def demand(text: str) -> Demand:
    spec = parse_spec(SPEC.replace("FLAVOR", text), "spec")
    (flavor,) = wanted(spec, release=release("2025.2")).flavors
    return needs(spec, flavor)


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("model: p100", {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 10}),
        ("model: p100, ephemeral: 5, swap: 1025", {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 17}),
        ("model: p100, cpu_policy: dedicated", {"PCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 10}),
        (
            'model: p100, cpu_policy: dedicated, extra_specs: {"hw:emulator_threads_policy": isolate}',
            {"PCPU": 5, "MEMORY_MB": 2048, "DISK_GB": 10},
        ),
        (
            'model: p100, extra_specs: {"resources:CUSTOM_GPU": "2", "resources:DISK_GB": "0"}',
            {"VCPU": 4, "MEMORY_MB": 2048, "CUSTOM_GPU": 2},
        ),
    ],
)
def test_amounts_are_those_of_novas_request(text: str, amounts: dict[str, int]) -> None:
    assert demand(text).amounts == amounts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: p100", {"nodes": None, "policy": "legacy", "dedicated": False}),
        ("model: k4200", {"nodes": None, "policy": "required"}),
        ("model: k4200, numa: {policy: preferred, nodes: 2}", {"nodes": 2, "policy": "preferred"}),
        ("model: p100, cpu_policy: dedicated", {"nodes": 1, "dedicated": True}),
        ("model: p100, mem_page_size: large", {"nodes": 1, "unmodelled": ()}),
        ("gpus: {k4200: 1, p100: 2}", {"gpus": {"k4200": 1, "p100": 2}, "count": 3, "policy": "required"}),
        ("model: p100, maxphysaddr: passthrough", {"required": {"COMPUTE_ADDRESS_SPACE_PASSTHROUGH"}}),
        (
            'model: p100, extra_specs: {"trait:CUSTOM_A": required, "trait:CUSTOM_B": forbidden}',
            {"required": {"CUSTOM_A"}, "forbidden": {"CUSTOM_B"}, "unmodelled": ()},
        ),
        ('model: p100, extra_specs: {"resources1:VCPU": "2"}', {"unmodelled": ("resources1:VCPU",)}),
        ('model: p100, extra_specs: {"rack": "a"}', {"unmodelled": ("rack",)}),
        ("model: p100, hide_hypervisor: true", {"unmodelled": (), "aggregate": {}}),
        (
            'model: p100, extra_specs: {"aggregate_instance_extra_specs:rack": a}',
            {"unmodelled": (), "aggregate": {"rack": "a"}},
        ),
    ],
)
def test_topology_traits_and_what_is_not_counted(text: str, expected: dict[str, Any]) -> None:
    found = demand(text)
    nodes = len(found.topology.nodes) if found.topology else None
    shown = {"nodes": nodes, "dedicated": bool(found.topology and found.topology.pinned)}
    assert {name: shown[name] if name in shown else getattr(found, name) for name in expected} == expected


def test_an_enabled_filter_also_requires_keys_without_namespace() -> None:
    spec = parse_spec(SPEC.replace("FLAVOR", 'model: p100, extra_specs: {"rack": a}'), "spec")
    (flavor,) = wanted(spec, release=release("2025.2")).flavors
    for filters, expected in (({"AggregateInstanceExtraSpecsFilter"}, {"rack": "a"}), ({"ComputeFilter"}, {})):
        assert needs(spec, flavor, Scheduler(filters=tuple(filters))).aggregate == expected

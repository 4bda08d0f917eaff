"""The table of reserved hosts."""

from __future__ import annotations

import pytest

from gpustack.cloud.compute import Hypervisor
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.tenancy.model import MARK, Present, ReservedHost, WantedAggregate, reserved, wanted
from gpustack.spec.load import parse_spec


def test_each_host_of_gpustacks_aggregates_has_a_row() -> None:
    metadata = {MARK: "CUSTOM_T", "filter_tenant_id": "b,a", "trait:CUSTOM_T": "required"}
    hosts = ("gpu1", "gpu2", "gpu3")
    present = Present(
        aggregates=(
            Aggregate(name="gpu", hosts=frozenset(hosts), metadata=metadata),
            Aggregate(name="az", hosts=frozenset(hosts)),
        ),
        nodes=tuple(Hypervisor(host=name, node=name, uuid=f"p-{name}") for name in hosts[:2]),
        bearers={"CUSTOM_T": frozenset({"p-gpu2"})},
        members={"gpu": frozenset({"p-gpu1"})},
    )
    assert [(row.host, row.isolated, row.bears_trait) for row in reserved(present)] == [
        ("gpu1", True, False),
        ("gpu2", False, True),
        ("gpu3", False, False),
    ]
    first = next(reserved(present))
    assert isinstance(first, ReservedHost)
    assert (first.aggregate, first.projects) == ("gpu", ("a", "b"))


HEAD = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu-[01:03]": [k4200], "big-*": [k4200]}
"""
NODES = [
    Hypervisor(host=name, node=f"{name}.example.org", uuid=name)
    for name in ("gpu-01", "GPU-02", "gpu-03", "big-1", "x")
]


def test_hosts_are_those_of_the_spec_that_nova_has() -> None:
    some = "{hosts: ['gpu-[01:02]', x], projects: [p], isolated: false}"
    spec = parse_spec(f"{HEAD}tenancy: {{aggregates: {{all: {{}}, some: {some}}}}}", "spec")
    found = wanted(spec, NODES, {"p": "id"})
    assert found.aggregates == (
        WantedAggregate(name="all", hosts=frozenset({"gpu-01", "gpu-03", "big-1"})),
        WantedAggregate(name="some", hosts=frozenset({"gpu-01"}), projects=frozenset({"id"}), isolated=False),
    )
    assert (found.gpu_hosts, found.aliases) == (found.aggregates[0].hosts, {"k4200"})
    assert found.missing == {"all": ("gpu-02",), "some": ("gpu-02", "x")}


def test_vgpus_are_requested_by_class() -> None:
    spec = parse_spec(HEAD.replace("}}}", "}, vgpu: {type: A16-8Q, resource_class: CUSTOM_A16_8Q}}}", 1), "spec")
    assert wanted(spec, [], {}).aliases == {"k4200", "CUSTOM_A16_8Q"}


def test_patterns_without_a_compute_node_are_missing() -> None:
    text = f"{HEAD}tenancy: {{aggregates: {{all: {{}}}}}}"
    found = wanted(parse_spec(text, "spec"), [], {})
    assert found.missing == {"all": ("gpu-[01:03]", "big-*")}


def test_without_a_section_nothing_is_wanted() -> None:
    found = wanted(parse_spec(HEAD, "spec"), NODES, {})
    assert (found.aggregates, found.isolates, found.trait) == ((), False, "CUSTOM_GPU_HOST")


@pytest.mark.parametrize(
    ("hosts", "missing"),
    [
        ("gpu-01", ()),
        ("gpu-01.example.org", ()),
        ("'gpu-0?'", ()),
        ("gpu-02", ("gpu-02",)),  # Nova writes it in upper case, and compares exactly
        ("'gpu-[01:03]'", ("gpu-02",)),
        ("'gpu-9*'", ("gpu-9*",)),
    ],
)
def test_names_and_patterns_of_missing_hosts(hosts: str, missing: tuple[str, ...]) -> None:
    spec = parse_spec(f"{HEAD}tenancy: {{aggregates: {{some: {{hosts: [{hosts}]}}}}}}", "spec")
    assert wanted(spec, NODES, {}).missing == ({"some": missing} if missing else {})

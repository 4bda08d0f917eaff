"""The steps of a request, in Nova's order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.count import capacity
from gpustack.operate.capacity.model import Cards, Demand, Host, Neighbors, Outcome, PlacementRequest, Reason
from gpustack.operate.capacity.room import Room
from gpustack.operate.capacity.topology import GuestNode, Topology
from gpustack.operate.capacity.walk import QUOTA, SHARED_DISK, walk

ALIAS = frozenset({"k4200"})
HOST = Host(
    uuid="u",
    name="gpu1",
    cards=(Cards(aliases=ALIAS, node=0, count=4),),
    amounts={"VCPU": 8, "MEMORY_MB": 8192},
    nodes={0: NumaNode(cpus=frozenset(range(8)), memory=8192)},
)
DEMAND = Demand(flavor="f", gpus={"k4200": 2}, amounts={"VCPU": 2, "MEMORY_MB": 1024}, vcpus=2, ram=1024)
FILTERS = ("ComputeFilter", "JsonFilter", "NUMATopologyFilter", "PciPassthroughFilter")
KNOWN = Scheduler(filters=FILTERS, isolated=False, by_project=False, fallback=True)
NODES = Topology(nodes=(GuestNode(shared=2, memory=1024),))
LARGE = Topology(nodes=(GuestNode(shared=2, memory=9000),))
NODE_0 = "node 0: 8 shared CPUs, 8192 MiB, 4 GPUs"
PINNED = PlacementRequest(amounts={"PCPU": 2, "MEMORY_MB": 1024}, forbidden=frozenset({"HW_CPU_HYPERTHREADING"}))


def failed(host: Host = HOST, demand: Demand = DEMAND, scheduler: Scheduler = KNOWN, **more: Any) -> str:
    """The name of the first step that fails; empty if none does."""
    found = walk(Room(host), demand, scheduler, **more)
    assert (found.claim is None) == (found.failed is not None)
    return found.failed.name if found.failed else ""


def test_steps_are_in_novas_order() -> None:
    names = [step.name for step in walk(Room(HOST), DEMAND, KNOWN, every=True).steps]
    assert names[0] == "API"
    assert names.index("compute_status_filter") < names.index("Placement: VCPU") < names.index("ComputeFilter")
    assert [name for name in names if name in FILTERS] == list(FILTERS)
    assert names[-3:] == ["claim of nova-compute: NUMA", "claim of nova-compute: PCI", "GPUs"]


@pytest.mark.parametrize(
    ("host", "demand", "name"),
    [
        ({}, {}, ""),
        ({}, {"refused": "no"}, "API"),
        ({"closed": Reason.ZONE}, {}, "map_az_to_placement_aggregate"),
        ({"closed": Reason.DISABLED}, {}, "compute_status_filter"),
        ({"closed": Reason.DOWN}, {}, "ComputeFilter"),
        ({"closed": Reason.CELL}, {}, "enabled cells"),
        ({"amounts": {}}, {}, "Placement: MEMORY_MB"),
        ({}, {"amounts": {"VCPU": 9}}, "Placement: VCPU"),
        ({}, {"gpus": {"k4200": 5}}, "PciPassthroughFilter"),
        ({}, {"gpus": {"k4200": 5}, "classes": ("CUSTOM_GPU",)}, "Placement: CUSTOM_GPU"),
        # It gets the requests for devices too.
        ({}, {"gpus": {"k4200": 5}, "topology": NODES}, "NUMATopologyFilter"),
        ({"nodes": {}}, {"topology": NODES}, "NUMATopologyFilter"),
    ],
)
def test_the_first_failing_step_is_novas(host: dict[str, Any], demand: dict[str, Any], name: str) -> None:
    assert failed(replace(HOST, **host), replace(DEMAND, **demand)) == name


def test_a_walk_ends_at_the_first_failure_unless_every_step_is_requested() -> None:
    refused = replace(DEMAND, refused="no")
    assert [step.name for step in walk(Room(HOST), refused, KNOWN).steps] == ["API"]
    assert walk(Room(HOST), refused, KNOWN, every=True).steps[-1].name == "GPUs"


@pytest.mark.parametrize(
    ("quota", "outcome"), [(None, Outcome.UNKNOWN), ("", Outcome.PASSED), ("cores", Outcome.FAILED)]
)
def test_a_quota_is_evaluated_only_if_it_is_known(quota: str | None, outcome: Outcome) -> None:
    steps = walk(Room(HOST), replace(DEMAND, quota=quota), KNOWN).steps
    assert [step.outcome for step in steps if step.name == QUOTA] == [outcome]


@pytest.mark.parametrize(
    ("demand", "amounts"),
    [
        ({"gpus": {"k4200": 5}}, (5, 4, Reason.FRAGMENTS)),
        ({"amounts": {"CUSTOM_A": 1}}, (1, 0, Reason.RESOURCE)),
        ({"topology": NODES, "gpus": {"k4200": 5}}, ("2 CPUs and 1024 MiB", NODE_0, Reason.FRAGMENTS)),
        ({"topology": LARGE}, ("2 CPUs and 9000 MiB", NODE_0, Reason.NUMA)),
    ],
)
def test_a_failed_step_has_the_amounts_and_the_reason(demand: dict[str, Any], amounts: tuple[Any, ...]) -> None:
    step = walk(Room(HOST), replace(DEMAND, **demand), KNOWN).failed
    assert step is not None
    assert (step.wanted, step.available, step.reason) == amounts


@pytest.mark.parametrize(
    ("guest", "wanted", "available"),
    [
        ({"pages": -2}, "2 CPUs and 1024 MiB in large pages", "4 shared CPUs, 8192 MiB, 0 pages of 2048 KiB, 4 GPUs"),
        (
            {"pages": 1 << 20},
            "2 CPUs and 1024 MiB in 1048576 KiB pages",
            "4 shared CPUs, 8192 MiB, 0 pages of 2048 KiB, 4 GPUs",
        ),
        ({"policy": "dedicated"}, "2 CPUs and 1024 MiB", "1 dedicated CPU, 8192 MiB, 4 GPUs"),
        ({"policy": "mixed"}, "2 CPUs and 1024 MiB", "1 dedicated CPU, 4 shared CPUs, 8192 MiB, 4 GPUs"),
    ],
)
def test_numa_nodes_are_described_by_the_needs(guest: dict[str, Any], wanted: str, available: str) -> None:
    """Processors of the requested kind, and pages if their size is requested: otherwise a refusal looks like room."""
    node = NumaNode(
        cpus=frozenset(range(4)), pcpus=frozenset({4}), cpu_usage=4, cpu_ratio=2, memory=8192, pages={2048: (4, 0)}
    )
    topology = Topology(nodes=(GuestNode(dedicated=2, memory=1024),), **guest)
    step = walk(Room(replace(HOST, nodes={0: node})), replace(DEMAND, topology=topology), KNOWN).failed
    assert step is not None
    assert (step.wanted, step.available) == (wanted, f"node 0: {available}")


def test_an_amount_that_is_not_known_is_not_none_free() -> None:
    """Placement lists the resources of hosts with free memory only, and not those of a shared disk."""
    steps = {step.name: step for step in walk(Room(replace(HOST, amounts={})), DEMAND, KNOWN, every=True).steps}
    of_placement = {name: steps[f"Placement: {name}"] for name in ("VCPU", "MEMORY_MB")}
    free = {name: (step.outcome, step.available) for name, step in of_placement.items()}
    assert free == {"VCPU": (Outcome.PASSED, None), "MEMORY_MB": (Outcome.FAILED, 0)}


@pytest.mark.parametrize(("shared", "disk", "doubts"), [(True, 10, [SHARED_DISK]), (True, 0, []), (False, 10, [])])
def test_a_shared_disk_is_a_doubt_for_flavors_with_a_disk(shared: bool, disk: int, doubts: list[str]) -> None:
    host = replace(HOST, shares_disk=shared, amounts={**HOST.amounts, "DISK_GB": 100})
    demand = replace(DEMAND, amounts={**DEMAND.amounts, **({"DISK_GB": disk} if disk else {})})
    assert walk(Room(host), demand, KNOWN).doubts == doubts


@pytest.mark.parametrize(
    ("amounts", "shared", "more", "name"),
    [
        ({}, False, {}, "Placement: resources"),
        ({"DISK_GB": 1}, False, {}, ""),
        ({"DISK_GB": 1}, True, {}, "Placement: resources"),
        ({"CUSTOM_A": 1}, True, {}, ""),
        ({}, False, {"unmodelled": ("resources1:VCPU",)}, ""),  # a doubt: the group may be of the host itself
    ],
)
def test_nova_finds_no_host_without_an_allocation_of_its_own(
    amounts: dict[str, int], shared: bool, more: dict[str, Any], name: str
) -> None:
    host = replace(HOST, shares_disk=shared, amounts={**HOST.amounts, "DISK_GB": 100, "CUSTOM_A": 1})
    assert failed(host, replace(DEMAND, amounts=amounts, **more)) == name


def test_without_the_filter_the_claim_fails() -> None:
    unfiltered = replace(KNOWN, filters=("ComputeFilter",))
    assert failed(demand=replace(DEMAND, gpus={"k4200": 5}), scheduler=unfiltered) == "claim of nova-compute: PCI"


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("Ours", "the effect of Ours is not counted"),
        ("MetricsFilter", "the effect of MetricsFilter is not counted"),
        ("JsonFilter", ""),  # only instances have its hints
        ("ImagePropertiesFilter", ""),
    ],
)
def test_a_filter_that_is_not_evaluated_is_a_doubt(name: str, doubt: str) -> None:
    known = replace(KNOWN, filters=(*FILTERS[:1], name, *FILTERS[2:]))
    (step,) = [step for step in walk(Room(HOST), DEMAND, known).steps if step.name == name]
    assert (step.outcome, step.doubt) == (Outcome.UNKNOWN, doubt)
    found = capacity([HOST], DEMAND, scheduler=known)
    assert (found.least, found.most) == (0 if doubt else 2, 2)


@pytest.mark.parametrize("filters", [FILTERS, (*FILTERS, "ComputeCapabilitiesFilter")])
def test_properties_without_a_model_are_a_doubt_with_every_filter(filters: tuple[str, ...]) -> None:
    demand = replace(DEMAND, unmodelled=("resources1:VCPU", "the image's img_hv_type"))
    doubt = "the effect of resources1:VCPU, the image's img_hv_type is not counted"
    assert walk(Room(HOST), demand, replace(KNOWN, filters=filters)).doubts == [doubt]


@pytest.mark.parametrize(
    ("accepted", "required", "forbidden", "step", "wanted"),
    [
        ((), "", "", "max_unit", None),
        ((), "A", "", "traits", "A"),
        ((), "H", "B", "max_unit", None),  # the host has H and lacks B, so that no trait is the reason
        ((), "AH", "BI", "traits", "A, !I"),
        (None, "H", "B", "traits", "!B, unknown to Placement"),
        (None, "A", "B", "traits", "A or !B, unknown to Placement"),
    ],
)
def test_refusals_of_placement_name_the_traits(
    accepted: Any, required: str, forbidden: str, step: str, wanted: str | None
) -> None:
    demand = replace(DEMAND, required=frozenset(required), forbidden=frozenset(forbidden))
    found = walk(Room(replace(HOST, traits=frozenset("HI"))), demand, KNOWN, [accepted]).failed
    assert found is not None
    assert (found.name, found.wanted) == (f"Placement: {step}", wanted)


@pytest.mark.parametrize(
    ("name", "metadata", "number"),
    [
        ("NumInstancesFilter", (), 1),
        ("NumInstancesFilter", ("5", "9"), 1),  # of aggregates, which it does not read
        ("AggregateNumInstancesFilter", (), 1),
        ("AggregateNumInstancesFilter", ("5", "9"), 2),
        ("AggregateNumInstancesFilter", ("3", "9"), 0),
        ("AggregateNumInstancesFilter", ("five",), 1),  # Nova takes the option then
    ],
)
def test_a_host_gets_as_many_instances_as_its_filter_allows(name: str, metadata: tuple[str, ...], number: int) -> None:
    host = replace(HOST, instances=3, metadata={"max_instances_per_host": frozenset(metadata)} if metadata else {})
    found = capacity([host], DEMAND, scheduler=replace(KNOWN, filters=(*FILTERS, name), instances=4))
    assert (found.least, found.most) == (number, number)
    assert [limit.reason for limit in found.limits] == ([Reason.INSTANCES] if number < 2 else [])


def test_instances_of_an_aggregate_are_a_doubt_without_the_schedulers_configuration() -> None:
    host = replace(HOST, instances=60, metadata={"max_instances_per_host": frozenset({"1"})})
    doubt = "AggregateNumInstancesFilter, if it is enabled, refuses hosts with max_instances_per_host in an aggregate"
    assert doubt in walk(Room(host), DEMAND, Scheduler()).doubts
    assert walk(Room(host), DEMAND, KNOWN).doubts == []
    assert (
        walk(Room(replace(host, metadata={})), DEMAND, Scheduler()).doubts
        == walk(Room(HOST), DEMAND, Scheduler()).doubts
    )


def test_the_second_request_fits_hosts_without_pcpu() -> None:
    demand = replace(DEMAND, amounts=PINNED.amounts, forbidden=PINNED.forbidden)
    assert failed(demand=demand) == "Placement: PCPU"
    second = replace(demand, fallback=PlacementRequest(amounts={"VCPU": 2}))
    assert failed(demand=second) == ""
    assert failed(demand=second, accepted=[(), {"u"}]) == ""
    assert failed(demand=second, accepted=[{"u"}, ()]) == "Placement: PCPU"
    counted = [capacity([HOST], second, scheduler=replace(KNOWN, fallback=known)) for known in (True, None)]
    assert [(entry.least, entry.most) for entry in counted] == [(2, 2), (0, 2)]
    assert "disable_fallback_pcpu_query" in counted[1].doubts[0]


def test_a_doubt_lowers_the_least_number_of_its_hosts_only() -> None:
    doubtful = replace(HOST, name="gpu2", doubt="stale rows")
    counted = capacity([HOST, doubtful], DEMAND, scheduler=KNOWN)
    assert (counted.least, counted.most, counted.doubts) == (2, 4, ("stale rows",))
    unknown = capacity([HOST], replace(DEMAND, unknown=("other",)), scheduler=KNOWN)
    assert (unknown.least, unknown.most) == (2, None)


def test_a_host_with_dedicated_processors_pins_to_no_others() -> None:
    """Placement accepts the second request on a host without free PCPU, and nova-compute refuses it."""
    demand = replace(DEMAND, topology=NODES, fallback=PlacementRequest(amounts={"VCPU": 2, "MEMORY_MB": 1024}))
    demand = replace(demand, amounts=PINNED.amounts)
    unknown = replace(HOST, nodes=None)
    assert failed(unknown, demand) == ""
    assert failed(replace(unknown, amounts={**HOST.amounts, "PCPU": 0}), demand) == "NUMATopologyFilter"


APART = Neighbors(step="ServerGroupAntiAffinityFilter", of="g", hosts={"gpu1": 1}, limit=1)
BESIDE = Neighbors(step="SameHostFilter", of="the hint same_host", hosts={"gpu2": 1})


@pytest.mark.parametrize(
    ("rules", "enabled", "name"),
    [
        (None, FILTERS, ""),
        ((APART,), (*FILTERS, APART.step), APART.step),
        ((replace(APART, limit=2),), (*FILTERS, APART.step), ""),
        ((APART,), FILTERS, "conductor: server group"),  # Nova refuses the policy
        ((APART,), None, APART.step),  # it is among Nova's default
        ((BESIDE,), (*FILTERS, BESIDE.step), BESIDE.step),
        ((replace(BESIDE, hosts={"gpu1": 1}),), (*FILTERS, BESIDE.step), ""),
        ((BESIDE,), FILTERS, ""),  # Nova ignores the hint
        ((BESIDE,), None, ""),
    ],
)
def test_other_instances_of_a_group_or_a_hint_keep_off_hosts(
    rules: tuple[Neighbors, ...] | None, enabled: tuple[str, ...] | None, name: str
) -> None:
    assert failed(demand=replace(DEMAND, neighbors=rules), scheduler=replace(KNOWN, filters=enabled)) == name


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [(APART, "fewer than 1 instance of g"), (BESIDE, "a host with instances of the hint same_host")],
)
def test_a_refusal_of_neighbors_names_the_rule(rule: Neighbors, wanted: str) -> None:
    step = walk(Room(HOST), replace(DEMAND, neighbors=(rule,)), replace(KNOWN, filters=(rule.step,))).failed
    assert step is not None
    assert step.wanted == wanted


def test_a_group_is_evaluated_only_if_it_is_known() -> None:
    scheduler = replace(KNOWN, filters=(APART.step,))
    for rules, outcome in ((None, Outcome.UNKNOWN), ((), Outcome.PASSED)):
        steps = walk(Room(HOST), replace(DEMAND, neighbors=rules), scheduler).steps
        assert [step.outcome for step in steps if step.name == APART.step] == [outcome]


def test_a_hint_is_a_doubt_if_its_filter_is_not_known_to_be_enabled() -> None:
    found = walk(Room(HOST), replace(DEMAND, neighbors=(BESIDE,)), replace(KNOWN, filters=None))
    assert found.doubts == ["SameHostFilter, if it is enabled, refuses {hosts} because of the hint same_host"]
    beside = replace(BESIDE, hosts={"gpu1": 1})
    for rule, filters in ((BESIDE, FILTERS), (beside, None), (replace(APART, limit=2), None)):
        known = replace(KNOWN, filters=filters)
        assert walk(Room(HOST), replace(DEMAND, neighbors=(rule,)), known).doubts == []


def test_a_row_that_holds_a_free_device_of_placement_fails_in_the_filter() -> None:
    demand = replace(DEMAND, gpus={"k4200": 5}, classes=("CUSTOM_GPU",))
    assert failed(replace(HOST, surplus=(Cards(aliases=ALIAS),)), demand) == "PciPassthroughFilter"


def test_gpus_of_several_aliases_are_counted_by_alias() -> None:
    """Two K4200 are no help to a flavor that also requests a P100."""
    demand = replace(DEMAND, gpus={"k4200": 1, "p100": 1})
    step = walk(Room(HOST), demand, KNOWN).failed
    assert step is not None
    assert (step.name, step.wanted, step.available) == ("PciPassthroughFilter", "k4200:1, p100:1", "k4200:4, p100:0")


def test_a_certain_refusal_of_an_aggregate_names_the_metadata() -> None:
    demand = replace(DEMAND, aggregate={"rack": "a"})
    step = walk(Room(HOST), demand, replace(KNOWN, filters=("AggregateInstanceExtraSpecsFilter",))).failed
    assert step is not None
    assert step.wanted == "rack=a"

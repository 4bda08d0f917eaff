"""The order of operations, for each state in which a run may find a cloud."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.flavors import Sizes
from gpustack.cloud.servers import Server
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.flavor.operations import CreateFlavor, FlavorOperation
from gpustack.offer.tenancy.compare import TenancyPlan, compare, guarded
from gpustack.offer.tenancy.model import MARK, Present, Wanted, WantedAggregate
from gpustack.spec.tenancy import GpuAggregate, Tenancy
from support.flavor_operations import PLAIN, changed
from support.fleet_cloud import StandIn

TRAIT = "CUSTOM_GPU_HOST"
REQUIRED = {f"trait:{TRAIT}": "required"}
NODES = tuple(Hypervisor(host=name, node=name, uuid=f"p-{name}") for name in ("cpu1", "gpu1", "gpu2"))
BOTH = frozenset({"gpu1", "gpu2"})
WANTED = Wanted(
    trait=TRAIT,
    gpu_hosts=BOTH,
    aggregates=(WantedAggregate(name="gpu", hosts=BOTH, projects=frozenset({"a1", "b2"})),),
    aliases=frozenset({"k4200"}),
    flavors=frozenset({"g1", "g2"}),
)
DONE = Aggregate(
    name="gpu", hosts=BOTH, metadata={MARK: TRAIT, "filter_tenant_id": "a1,b2", **REQUIRED}, id=1, uuid="u1"
)
BEARERS = {TRAIT: frozenset({"p-gpu1", "p-gpu2"})}
MEMBERS = {"gpu": BEARERS[TRAIT]}
OPEN = replace(WANTED, aggregates=())


def flavor(name: str, specs: Mapping[str, str] | None = None) -> PresentFlavor:
    extra_specs = {"pci_passthrough:alias": "k4200:1", **(specs or {})}
    return PresentFlavor(id=name, name=name, sizes=Sizes(vcpus=1, ram=1, disk=1), extra_specs=extra_specs)


def server(name: str, project: str, *traits: str, gpus: int = 0) -> Server:
    return Server(
        id=name,
        name=name,
        project=project,
        host="GPU1",
        devices={"k4200": gpus} if gpus else {},
        traits=frozenset(traits),
    )


GOOD = (flavor("g1", REQUIRED),)
PRESENT = Present(aggregates=(DONE,), nodes=NODES, bearers=BEARERS, members=MEMBERS, flavors=GOOD)


def steps(plan: TenancyPlan) -> list[str]:
    listed = [(change.to_dict(), change.details()) for change in plan.operations]
    return [
        " ".join([str(data["kind"]), *details, *([str(data["host"])] if "host" in data else [])])
        for data, details in listed
    ]


def codes(plan: TenancyPlan) -> list[str]:
    return [found.code.value for found in plan.findings]


def test_all_is_done_in_one_order() -> None:
    plan = compare(WANTED, Present(nodes=NODES, flavors=GOOD))
    assert steps(plan) == [
        "add_trait gpu1",
        "add_trait gpu2",
        "create_aggregate",
        f"set_metadata + {MARK} = {TRAIT} + filter_tenant_id = a1,b2",
        "add_host gpu1",
        "add_host gpu2",
        f"set_metadata + trait:{TRAIT} = required",
    ]
    assert codes(plan) == []


def test_nothing_changes_twice() -> None:
    plan = compare(WANTED, PRESENT, prune=True)
    assert (steps(plan), codes(plan), plan.superfluous) == ([], [], ())


def test_isolation_waits_for_the_flavors_of_the_spec() -> None:
    plan = compare(WANTED, Present(nodes=NODES, flavors=(flavor("g1"), flavor("by-hand"))))
    assert not any("required" in step for step in steps(plan))
    assert codes(plan) == ["GPU839", "GPU840"]


def test_flavors_of_vgpus_need_the_trait_too() -> None:
    wanted = replace(WANTED, aliases=WANTED.aliases | {"CUSTOM_A16_8Q"})
    vgpus = [replace(flavor(name), extra_specs={"resources:CUSTOM_A16_8Q": "1"}) for name in ("g1", "by-hand")]
    assert codes(compare(wanted, Present(nodes=NODES, flavors=tuple(vgpus)))) == ["GPU839", "GPU840"]
    old = replace(server("old", "a1"), classes={"CUSTOM_A16_8Q": 1})
    assert codes(compare(wanted, replace(PRESENT, servers=(old,)))) == ["GPU842"]


@pytest.mark.parametrize(
    ("found", "expected"), [(flavor("by-hand"), ["GPU840"]), (replace(flavor("g1"), extra_specs={}), [])]
)
def test_isolation_waits_for_no_other_flavor(found: PresentFlavor, expected: list[str]) -> None:
    plan = compare(WANTED, Present(nodes=NODES, flavors=(found,)))
    assert (steps(plan)[-1], codes(plan)) == (f"set_metadata + trait:{TRAIT} = required", expected)


def test_projects_alone_need_no_trait() -> None:
    wanted = replace(WANTED, aggregates=(replace(WANTED.aggregates[0], isolated=False),))
    plan = compare(wanted, Present(nodes=NODES, flavors=(flavor("g1"),)))
    assert [step.split()[0] for step in steps(plan)] == ["create_aggregate", "set_metadata", "add_host", "add_host"]
    assert codes(plan) == []


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (replace(DONE, hosts=frozenset({"GPU1"})), ["add_host gpu2"]),
        (replace(DONE, hosts=frozenset({*BOTH, "cpu1"})), ["remove_host cpu1"]),
        (
            replace(DONE, metadata={**DONE.metadata, "filter_tenant_id": "a1"}),
            ["set_metadata ~ filter_tenant_id = a1,b2 (was a1)"],
        ),
        (
            replace(DONE, metadata={**DONE.metadata, "filter_tenant_id2": "c3", "weight": "1"}),
            ["set_metadata - filter_tenant_id2 (was c3)"],
        ),
        (
            replace(DONE, metadata={**DONE.metadata, "trait:CUSTOM_OLD": "required"}),
            ["set_metadata - trait:CUSTOM_OLD (was required)"],
        ),
        (
            Aggregate(name="gpu", hosts=frozenset()),  # an interrupted creation
            [
                f"set_metadata + {MARK} = {TRAIT} + filter_tenant_id = a1,b2",
                "add_host gpu1",
                "add_host gpu2",
                f"set_metadata + trait:{TRAIT} = required",
            ],
        ),
    ],
)
def test_differences_of_an_aggregate(aggregate: Aggregate, expected: list[str]) -> None:
    assert steps(compare(WANTED, replace(PRESENT, aggregates=(aggregate,)))) == expected


def test_hosts_are_opened_before_all_else() -> None:
    """Another trait: the hosts accept all flavors until the flavors have it."""
    wanted = replace(WANTED, trait="CUSTOM_NEW")
    plan = compare(wanted, PRESENT)
    assert steps(plan)[0] == f"set_metadata - trait:{TRAIT} (was required)"
    assert steps(plan)[-1] == f"set_metadata ~ {MARK} = CUSTOM_NEW (was {TRAIT})"
    assert codes(plan)[0] == "GPU839"


@pytest.mark.parametrize("aggregate", [replace(DONE, metadata={"a": "b"}), replace(DONE, metadata={})])
def test_an_aggregate_of_others_blocks(aggregate: Aggregate) -> None:
    plan = compare(WANTED, replace(PRESENT, aggregates=(aggregate,)))
    assert (steps(plan), codes(plan)) == ([], ["GPU835"])


def test_the_earlier_spec_stays_without_prune() -> None:
    plan = compare(OPEN, PRESENT)
    assert (steps(plan), plan.superfluous) == ([], ("gpu",))


def test_prune_opens_hosts_and_keeps_a_required_trait() -> None:
    opened = [
        f"set_metadata - filter_tenant_id (was a1,b2) - trait:{TRAIT} (was required)",
        "remove_host gpu1",
        "remove_host gpu2",
    ]
    plan = compare(OPEN, PRESENT, prune=True)
    assert (steps(plan), codes(plan)) == (opened, ["GPU834"])
    plan = compare(OPEN, replace(PRESENT, flavors=(flavor("g1"),)), prune=True)
    assert steps(plan) == [*opened, "remove_trait gpu1", "remove_trait gpu2", "delete_aggregate"]


def test_prune_keeps_an_aggregate_with_metadata_of_others() -> None:
    (ours, *more) = PRESENT.aggregates
    shared = replace(ours, metadata={**ours.metadata, "availability_zone": "gpu"})
    plan = compare(OPEN, replace(PRESENT, aggregates=(shared, *more)), prune=True)
    assert not [step for step in steps(plan) if step.startswith(("remove_host", "delete_aggregate"))]
    (kept,) = [finding for finding in plan.findings if finding.code == "GPU458"]
    assert "availability_zone" in kept.message


def test_prune_removes_the_trait_of_hosts_that_left_the_spec() -> None:
    wanted = replace(WANTED, gpu_hosts=frozenset({"gpu1"}))
    wanted = replace(wanted, aggregates=(replace(WANTED.aggregates[0], hosts=frozenset({"gpu1"})),))
    assert steps(compare(wanted, PRESENT)) == ["remove_host gpu2"]
    assert steps(compare(wanted, PRESENT, prune=True)) == ["remove_host gpu2", "remove_trait gpu2"]


def test_prune_keeps_a_trait_that_flavors_outside_the_spec_require() -> None:
    """Their GPUs may be those of the host that left the spec."""
    wanted = replace(WANTED, gpu_hosts=frozenset({"gpu1"}))
    wanted = replace(wanted, aggregates=(replace(WANTED.aggregates[0], name="new", hosts=frozenset({"gpu1"})),))
    plan = compare(wanted, replace(PRESENT, flavors=(*GOOD, flavor("hand", REQUIRED))), prune=True)
    assert "remove_trait gpu2" not in steps(plan)
    assert "delete_aggregate" in steps(plan)
    (kept,) = [found for found in plan.findings if found.code == "GPU834"]
    assert kept.message.endswith("because flavors require it: hand")


def test_aggregates_of_others_decide_too() -> None:
    other = Aggregate(
        name="other", hosts=frozenset({"gpu1"}), metadata={"filter_tenant_id": "c3", "trait:CUSTOM_X": "required"}
    )
    plan = compare(WANTED, replace(PRESENT, aggregates=(DONE, other)))
    assert codes(plan) == ["GPU836", "GPU837"]
    assert "the host accepts these projects too" in plan.findings[0].message
    wanted = replace(WANTED, aggregates=(replace(WANTED.aggregates[0], projects=frozenset()),))
    messages = [found.message for found in compare(wanted, replace(PRESENT, aggregates=(DONE, other))).findings]
    assert "the host accepts these projects only" in messages[0]
    for alike in ({"filter_tenant_id": "a1"}, {f"trait:{TRAIT}": "required"}, {"trait:CUSTOM_X": "optional"}):
        present = replace(PRESENT, aggregates=(DONE, replace(other, metadata=alike)))
        assert codes(compare(WANTED, present)) == []


def test_a_trait_of_another_aggregate_that_all_flavors_require_is_no_matter() -> None:
    other = Aggregate(name="other", hosts=frozenset({"gpu1"}), metadata={"trait:CUSTOM_X": "required"})
    flavors = (flavor("g1", {**REQUIRED, "trait:CUSTOM_X": "required"}),)
    assert codes(compare(WANTED, replace(PRESENT, aggregates=(DONE, other), flavors=flavors))) == []


def test_placement_may_lack_a_host() -> None:
    plan = compare(WANTED, replace(PRESENT, members={"gpu": frozenset({"p-gpu1"})}))
    assert [(found.code.value, found.place) for found in plan.findings] == [("GPU838", "gpu2")]


def test_instances_that_stay_are_listed() -> None:
    present = replace(
        PRESENT,
        servers=(
            server("web", "a1"),
            server("old", "a1", gpus=1),
            server("good", "b2", TRAIT, gpus=1),
            server("stranger", "c3", TRAIT, gpus=1),
        ),
    )
    texts = [(found.code.value, found.message.split(" ")[0]) for found in compare(WANTED, present).findings]
    assert texts == [("GPU841", "web"), ("GPU841", "stranger"), ("GPU842", "old")]


def test_hosts_without_a_compute_node_are_reported() -> None:
    plan = compare(replace(WANTED, missing={"gpu": tuple(f"gpu{n}" for n in range(3, 10))}), PRESENT)
    assert "gpu3, gpu4, gpu5, gpu6, gpu7 and 2 more" in plan.findings[0].message


KEY = f"trait:{TRAIT}"
TENANCY = Tenancy(aggregates={"gpu": GpuAggregate()})
BOUND = replace(PLAIN, extra_specs={KEY: "required"})
CREATED = CreateFlavor(why="", flavor=BOUND)
GIVEN = changed(PLAIN, {KEY: "required"})
LOST = changed(BOUND, {}, (KEY,))
REPLACED = changed(BOUND, {KEY: "forbidden"})
OTHER = changed(replace(BOUND, extra_specs={KEY: "required", "c": "d"}), {"a": "b"}, ("c",))


def cloud(*, providers: int = 0, metadata: dict[str, str] | None = None) -> StandIn:
    aggregates = [{"name": "gpu", "hosts": [], "metadata": metadata or {}}]
    return StandIn(
        {
            f"placement /resource_providers?required={TRAIT}": (
                (200, {"resource_providers": [{"uuid": "p", "name": "gpu1", "root_provider_uuid": "p"}] * providers})
                if providers
                else (400, {})
            ),
            "compute /os-aggregates": (200, {"aggregates": aggregates}),
        }
    )


@pytest.mark.parametrize("operation", [CREATED, GIVEN])
def test_flavors_need_a_host_with_the_trait(operation: FlavorOperation) -> None:
    def codes(providers: int) -> list[str]:
        found = guarded(lambda: cloud(providers=providers).connection, TENANCY, [operation])
        return [entry.code.value for entry in found]

    assert (codes(0), codes(1)) == (["GPU843"], [])


@pytest.mark.parametrize("operation", [LOST, REPLACED])
@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({MARK: TRAIT, KEY: "required"}, ["GPU844"]),
        ({KEY: "required"}, []),
        ({MARK: TRAIT}, []),
    ],
)
def test_flavors_keep_a_trait_that_aggregates_require(
    operation: FlavorOperation, metadata: dict[str, str], expected: list[str]
) -> None:
    found = guarded(lambda: cloud(metadata=metadata).connection, None, [operation])
    assert [entry.code.value for entry in found] == expected


def test_other_changes_send_no_request() -> None:
    stand_in = cloud()
    assert guarded(lambda: stand_in.connection, TENANCY, [OTHER]) == []
    assert stand_in.requests == []


@pytest.mark.parametrize(
    ("hosts", "metadata", "content"),
    [
        (BOTH, {}, "hosts: 2; metadata: none"),
        (frozenset[str](), {"ssd": "1", "az": "x"}, "hosts: 0; metadata: az, ssd"),
    ],
)
def test_the_content_of_an_aggregate_of_others_is_named(
    hosts: frozenset[str], metadata: dict[str, str], content: str
) -> None:
    other = Aggregate(name="gpu", hosts=hosts, metadata=metadata)
    (found,) = compare(WANTED, replace(PRESENT, aggregates=(other,))).findings
    assert content in found.message


def test_each_change_needs_those_that_make_it_harmless() -> None:
    made = compare(WANTED, Present(nodes=NODES, flavors=GOOD)).operations
    assert [change.needs for change in made] == [(), (), (), *[(made[2].key,)], *[(made[3].key,)] * 3]
    assert [change.key for change in made] == [f"tenancy:{number}" for number in range(7)]
    opened = compare(OPEN, replace(PRESENT, flavors=(flavor("g1"),)), prune=True).operations
    of_aggregate = [change.key for change in opened if change.object_kind.startswith("aggregate_")]
    assert [change.needs for change in opened] == [(), (), (), (), (), tuple(of_aggregate)]


@pytest.mark.parametrize(
    ("projects", "before", "why"),
    [
        (frozenset({"a1"}), {MARK: TRAIT}, "the hosts accept certain projects only"),
        (frozenset[str](), {MARK: TRAIT, "filter_tenant_id": "a1"}, "the hosts accept all projects"),
        (frozenset[str](), {MARK: "CUSTOM_OLD"}, "gpustack's mark"),
    ],
)
def test_a_change_of_metadata_has_its_reason(projects: frozenset[str], before: dict[str, str], why: str) -> None:
    entry = replace(WANTED.aggregates[0], projects=projects, isolated=False)
    present = replace(PRESENT, aggregates=(replace(DONE, metadata=before),))
    (change,) = compare(replace(WANTED, aggregates=(entry,)), present).operations
    assert change.why == why


@pytest.mark.parametrize(
    ("isolated", "why"), [(False, "the hosts accept ordinary instances"), (True, "the spec has another trait")]
)
def test_a_requirement_that_goes_has_its_reason(isolated: bool, why: str) -> None:
    metadata = {MARK: TRAIT, "filter_tenant_id": "a1,b2", "trait:CUSTOM_OLD": "required"}
    entry = replace(WANTED.aggregates[0], isolated=isolated)
    present = replace(PRESENT, aggregates=(replace(DONE, metadata=metadata),))
    first, *_ = compare(replace(WANTED, aggregates=(entry,)), present).operations
    assert (first.wanted, first.why) == ({"trait:CUSTOM_OLD": None}, why)


def test_every_aggregate_that_waits_is_named_with_the_flavors() -> None:
    second = replace(WANTED.aggregates[0], name="second", hosts=frozenset({"gpu2"}))
    wanted = replace(WANTED, aggregates=(replace(WANTED.aggregates[0], hosts=frozenset({"gpu1"})), second))
    plan = compare(wanted, Present(nodes=NODES, flavors=(flavor("g2"), flavor("g1"), flavor("g3", REQUIRED))))
    waits = [found for found in plan.findings if found.code == "GPU839"]
    assert [found.place for found in waits] == ["gpu", "second"]
    assert all("g1, g2" in found.message for found in waits)


@pytest.mark.parametrize(("hosts", "shown"), [(BOTH, "gpu1, gpu2"), (frozenset[str](), "none")])
def test_an_aggregate_that_prune_keeps_is_named(hosts: frozenset[str], shown: str) -> None:
    shared = replace(DONE, hosts=hosts, metadata={**DONE.metadata, "b": "1", "a": "2"})
    plan = compare(OPEN, replace(PRESENT, aggregates=(shared,)), prune=True)
    (kept,) = [found for found in plan.findings if found.code == "GPU458"]
    assert shown in kept.message
    assert "a, b" in kept.message
    assert "GPU458" not in codes(compare(OPEN, replace(PRESENT, aggregates=(shared,))))


def test_a_trait_is_given_only_to_the_hosts_of_the_spec_that_lack_it() -> None:
    plan = compare(WANTED, replace(PRESENT, bearers={TRAIT: frozenset({"p-gpu1", "p-cpu1"})}))
    assert steps(plan) == ["add_trait gpu2"]
    assert steps(compare(WANTED, replace(PRESENT, bearers={}), prune=True)) == ["add_trait gpu1", "add_trait gpu2"]


def test_traits_of_earlier_specs_are_removed_by_prune() -> None:
    present = replace(PRESENT, bearers={**BEARERS, "CUSTOM_OLD": frozenset({"p-gpu1", "p-cpu1"})})
    assert steps(compare(WANTED, present)) == []
    assert steps(compare(WANTED, present, prune=True)) == ["remove_trait cpu1", "remove_trait gpu1"]
    needing = (*GOOD, flavor("old", {"trait:CUSTOM_OLD": "required"}))
    plan = compare(WANTED, replace(present, flavors=needing), prune=True)
    assert steps(plan) == []
    (kept,) = [found for found in plan.findings if found.code == "GPU834"]
    assert (kept.place, "old" in kept.message) == ("CUSTOM_OLD", True)


@pytest.mark.parametrize(
    ("operation", "later", "expected"),
    [
        (CREATED, ([], {TRAIT}), []),
        (CREATED, ([], set()), ["GPU843"]),
        (LOST, ([DONE], {TRAIT}), ["GPU844"]),
        (LOST, ([], {TRAIT}), []),
        (LOST, ([replace(DONE, metadata=REQUIRED)], set()), []),  # of others
    ],
)
def test_flavors_follow_the_other_changes_of_their_plan(
    operation: FlavorOperation, later: tuple[list[Aggregate], set[str]], expected: list[str]
) -> None:
    found = guarded(lambda: pytest.fail("the cloud is asked"), TENANCY, [operation], later)
    assert [entry.code.value for entry in found] == expected


def test_a_spec_that_isolates_nothing_needs_no_trait() -> None:
    opened = Tenancy(aggregates={"gpu": GpuAggregate(isolated=False)})
    for tenancy in (None, opened):
        assert guarded(lambda: pytest.fail("the cloud is asked"), tenancy, [CREATED]) == []


def test_each_lost_trait_names_its_aggregates() -> None:
    lost = changed(replace(BOUND, extra_specs={KEY: "required", "trait:B": "required"}), {}, (KEY, "trait:B"))
    both = [replace(DONE, name=name, metadata={MARK: TRAIT, **REQUIRED, "trait:B": "required"}) for name in "xy"]
    found = guarded(lambda: pytest.fail("the cloud is asked"), None, [lost], (both, set()))
    assert [(entry.code.value, "x, y" in entry.message) for entry in found] == [("GPU844", True)] * 2
    assert ["B" in entry.message and TRAIT not in entry.message for entry in found] == [True, False]

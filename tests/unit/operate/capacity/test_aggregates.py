"""Hosts that refuse a flavor because of their aggregates, with the options of nova-scheduler known or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.nova_options.aggregates import Aggregate, metadata_of
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.aggregates import EXTRA_SPECS as FILTER
from gpustack.operate.capacity.aggregates import TYPES, matches, with_faults, zone_of
from gpustack.operate.capacity.count import capacity
from gpustack.operate.capacity.model import Cards, Demand, Host, Reason

ON = Scheduler(filters=(FILTER,), isolated=True, by_project=False)
OFF = Scheduler(filters=(), isolated=False, by_project=False)
BY_PROJECT = Scheduler(filters=("AggregateMultiTenancyIsolation",), isolated=False, by_project=False)
RACK = {"rack": frozenset({"a", "b"})}


def host(name: str, metadata: dict[str, frozenset[str]] | None = None) -> Host:
    cards = (Cards(aliases=frozenset({"k4200"}), count=2),)
    return Host(uuid=name, name=name, cards=cards, amounts={"VCPU": 8, "MEMORY_MB": 8}, metadata=metadata or {})


def demand(required: tuple[str, ...] = (), **aggregate: str) -> Demand:
    needs = {"VCPU": 1, "MEMORY_MB": 1}
    return Demand(
        flavor="f", gpus={"k4200": 1}, amounts=needs, vcpus=1, ram=1, aggregate=aggregate, required=frozenset(required)
    )


def test_metadata_of_all_aggregates_of_a_host_count() -> None:
    aggregates = [
        Aggregate(name="one", hosts=frozenset({"gpu1"}), metadata={"rack": "a, b", "availability_zone": "az1"}),
        Aggregate(name="two", hosts=frozenset({"gpu1", "gpu2"}), metadata={"rack": "c"}),
    ]
    found = metadata_of("GPU1", aggregates)
    assert (found["rack"], zone_of(found)) == ({"a", "b", "c"}, "az1")
    assert zone_of(metadata_of("gpu2", aggregates)) == ""


@pytest.mark.parametrize(
    ("value", "requirement", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("", "", True),
        ("b", "<or> a <or> b", True),
        ("c", "<or> a <or> b", False),
        ("16", "= 8", True),
        ("16", ">= 17", False),
        ("16", "!= 16", False),
        ("many", ">= 1", None),
        ("16", "==", False),
        ("abc", "<in> b", True),
        ("abc", "<all-in> a c", True),
        ("abc", "<all-in> a d", False),
        ("b", "s> a", True),
        ("b", "s!= b", False),
    ],
)
def test_operators_of_extra_specs(value: str, requirement: str, expected: bool | None) -> None:
    assert matches(value, requirement) is expected


@pytest.mark.parametrize(("known", "most"), [(ON, 2), (Scheduler(), 4), (OFF, None)])
def test_metadata_without_a_number_is_a_doubt_on_all_hosts(known: Scheduler, most: int | None) -> None:
    """Nova's comparison raises an error, which ends the request for all hosts, whichever it reaches first."""
    aggregates = [
        Aggregate(name="one", hosts=frozenset({"gpu1"}), metadata={"rack": "3"}),
        Aggregate(name="two", hosts=frozenset({"gpu2"}), metadata={"rack": "many"}),
        Aggregate(name="empty", hosts=frozenset(), metadata={"rack": "none"}),
    ]
    hosts = [host(name, metadata_of(name, aggregates)) for name in ("gpu1", "gpu2")]
    found = capacity(hosts, with_faults(demand(rack=">= 2"), aggregates, known), scheduler=known)
    if most is None:
        assert (found.least, found.most, found.doubts) == (4, 4, ())
        return
    assert (found.least, found.most) == (0, most)
    assert found.doubts[0] == (
        f"the effect of rack=many in an aggregate ({FILTER} fails: no number for '>= 2') is not counted"
    )


def test_hosts_without_the_metadata_are_refused_if_the_filter_is_enabled() -> None:
    hosts = [host("gpu1", RACK), host("gpu2"), host("gpu3", {"rack": frozenset({"c"})})]
    found = capacity(hosts, demand(rack="<or> a <or> x"), scheduler=ON)
    assert (found.least, found.most, found.doubts) == (2, 2, ())
    assert [(limit.reason, limit.hosts) for limit in found.limits] == [(Reason.AGGREGATE, ("gpu2", "gpu3"))]
    assert capacity(hosts, demand(rack="a"), scheduler=OFF).least == 6


def test_an_unknown_filter_is_a_doubt() -> None:
    found = capacity([host("gpu1", RACK), host("gpu2")], demand(rack="a"))
    assert (found.least, found.most) == (2, 4)
    (doubt,) = found.doubts
    assert doubt == f"{FILTER}, if it is enabled, refuses hosts without rack in an aggregate"
    certain = capacity([host("gpu1", RACK)], demand(rack="a"))
    assert (certain.least, certain.most, certain.doubts) == (2, 2, ())


def test_aggregates_with_traits_keep_other_flavors_out() -> None:
    hosts = [host("gpu1", {"trait:CUSTOM_A": frozenset({"required"})}), host("gpu2")]
    assert [capacity(hosts, demand(), scheduler=known).least for known in (ON, OFF)] == [2, 4]
    assert capacity(hosts, demand(("CUSTOM_A",)), scheduler=ON).least == 4
    unknown = capacity(hosts, demand())
    assert (unknown.least, unknown.most, len(unknown.doubts)) == (2, 4, 1)


@pytest.mark.parametrize("metadata", [{"trait:CUSTOM_A": frozenset({"a"})}, {"rack": frozenset({"required"})}])
def test_metadata_without_required_traits_keeps_no_flavor_out(metadata: dict[str, frozenset[str]]) -> None:
    assert capacity([host("gpu1", metadata)], demand(), scheduler=ON).least == 2


def test_aggregates_for_projects_are_a_doubt() -> None:
    hosts = [host("gpu1", {"filter_tenant_id2": frozenset({"p1"})}), host("gpu2")]
    found = capacity(hosts, demand())
    assert (found.least, found.most, found.doubts) == (2, 4, ("some hosts are in aggregates for projects",))
    off = capacity(hosts, demand(), scheduler=OFF)
    assert (off.least, off.most, off.doubts) == (4, 4, ())
    assert capacity(hosts, demand(), scheduler=BY_PROJECT).doubts


@pytest.mark.parametrize(("project", "number"), [("p1", 4), ("p2", 2)])
def test_hosts_of_other_projects_are_refused(project: str, number: int) -> None:
    hosts = [host("gpu1", {"filter_tenant_id2": frozenset({"p1"})}), host("gpu2")]
    found = capacity(hosts, replace(demand(), project=project), scheduler=BY_PROJECT)
    assert (found.least, found.most) == (number, number)


@pytest.mark.parametrize(
    ("by_project", "confined", "numbers"),
    [
        (True, frozenset({"gpu2"}), (2, 2)),
        (True, frozenset(), (0, 0)),  # placement_aggregate_required_for_tenants, and no aggregate is for it
        (True, None, (4, 4)),
        (False, frozenset({"gpu2"}), (4, 4)),
        (None, frozenset({"gpu2"}), (2, 4)),
    ],
)
def test_a_project_with_an_aggregate_gets_its_hosts_only(
    by_project: bool | None, confined: frozenset[str] | None, numbers: tuple[int, int]
) -> None:
    known = Scheduler(filters=(), isolated=False, by_project=by_project)
    found = capacity([host("gpu1"), host("gpu2")], replace(demand(), project="p1", confined=confined), scheduler=known)
    assert (found.least, found.most) == numbers


@pytest.mark.parametrize(("required", "numbers"), [(True, (0, 2)), (False, (2, 4)), (None, (2, 4))])
def test_a_host_without_projects_serves_none_if_an_aggregate_is_required(
    required: bool | None, numbers: tuple[int, int]
) -> None:
    """Without a project in the request, a host of an aggregate for projects stays a doubt."""
    known = Scheduler(filters=(), isolated=False, by_project=True, required=required)
    hosts = [host("gpu1", {"filter_tenant_id": frozenset({"p1"})}), host("gpu2")]
    found = capacity(hosts, demand(), scheduler=known)
    assert (found.least, found.most) == numbers
    limits = [(limit.reason, limit.hosts) for limit in found.limits]
    assert limits == ([(Reason.AGGREGATE, ("gpu2",))] if required else [])


@pytest.mark.parametrize(("types", "number"), [({"f", "g"}, 4), ({"g"}, 2), (set(), 4)])
def test_an_aggregate_of_flavors_refuses_others(types: set[str], number: int) -> None:
    metadata = {"instance_type": frozenset(types)} if types else {}
    known = Scheduler(filters=(TYPES,), isolated=False, by_project=False)
    found = capacity([host("gpu1", metadata), host("gpu2")], demand(), scheduler=known)
    assert (found.least, found.most) == (number, number)
    unknown = capacity([host("gpu1", metadata), host("gpu2")], demand())
    assert (unknown.least, unknown.most) == (number, 4)

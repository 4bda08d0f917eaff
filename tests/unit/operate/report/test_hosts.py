"""Hosts in groups, and counts that are never shown as complete if they are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from gpustack.fleet.index import Answers
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Holder, State
from gpustack.operate.report.hosts import GROUP, TIMES, Counts, columns, host_groups, summed
from support.fleet_answers import facts, server
from support.fleets import A100, fleet_of, gpu


def test_small_fleet_is_one_group() -> None:
    (group,) = host_groups(fleet_of(GROUP, 1))
    assert (len(group.hosts), group.is_part) == (GROUP, False)


def test_large_fleet_has_groups_of_limited_size() -> None:
    fleet = fleet_of(2 * GROUP + 1, 2)
    groups = list(host_groups(fleet))
    assert [(group.title, len(group.hosts)) for group in groups] == [
        ("gpu0001 to gpu0048", 48),
        ("gpu0049 to gpu0096", 48),
        ("gpu0097", 1),
    ]
    assert [host.number for group in groups for host in group.hosts] == list(range(1, 2 * GROUP + 2))
    numbers = [view.number for group in groups for host in group.hosts for view in host.gpus]
    assert numbers == list(range(1, len(fleet.gpus) + 1))


def test_names_that_begin_otherwise_are_another_group() -> None:
    fleet = fleet_of(GROUP + 2, 1)
    renamed = [
        replace(entry, host=entry.host.replace("gpu", "a" if n < 3 else "gpu")) for n, entry in enumerate(fleet.gpus)
    ]
    counts = [
        replace(entry, host=entry.host.replace("gpu", "a" if n < 3 else "gpu")) for n, entry in enumerate(fleet.counts)
    ]
    groups = host_groups(replace(fleet, gpus=tuple(renamed), counts=tuple(counts)))
    assert [group.title for group in groups] == ["a0001 to a0003", "gpu0004 to gpu0050"]


def test_gpus_that_no_source_lists_are_counted_or_unknown() -> None:
    servers = (server("vm1", "gpu1", count=2),)
    (unknown,) = host_groups(join(Answers(servers=servers)))
    assert unknown.counts.text == "2 in use, others unknown"
    assert unknown.counts.shares() == []
    (known,) = host_groups(join(Answers(servers=servers, hosts=(facts("gpu1", 0x81, 0x82, 0x83, 0x84, 0x85),))))
    assert (known.counts.text, known.counts.unlisted) == ("3 of 5 free", 3)
    assert known.counts.shares() == [(State.FREE, 0.0, 60.0), (State.ALLOCATED, 60.0, 40.0)]
    assert summed([unknown.counts, known.counts]).total is None
    assert Counts(total=5, free=None, states=Counter({State.ALLOCATED: 2})).text == "2 in use, others unknown"


def test_shares_of_a_bar_fill_it() -> None:
    states = Counter({state: number for number, state in enumerate(State, 1)})
    shares = Counts(total=21, free=1, states=states).shares()
    assert round(sum(width for _state, _start, width in shares), 1) == 100.0
    assert [state for state, _start, _width in shares] == list(State)


def test_virtual_functions_show_all_holders() -> None:
    whole = gpu("gpu1", 0, State.ALLOCATED)
    holders = tuple(
        replace(h, consumer=f"c{n}", server=None, migration=n == 2) for n, h in enumerate(3 * whole.holders)
    )
    fleet = replace(fleet_of(1, 1), gpus=(replace(whole, units=8, used=3, holders=holders),))
    ((view,),) = (host.gpus for group in host_groups(fleet) for host in group.hosts)
    assert view.units == "3/8"
    first, second = (
        f"consumer c0 (project {whole.holders[0].project})",
        f"consumer c1 (project {whole.holders[0].project})",
    )
    assert view.tip == f"0000:17:00.0 3/8 allocated: {first}, {second}, and 1 more"
    assert replace(view, uses=view.uses[:2]).tip == f"0000:17:00.0 3/8 allocated: {first}, {second}"
    assert replace(view, units="", uses=()).tip == "0000:17:00.0 allocated"
    assert [use.instance for use in view.uses] == ["consumer c0", "consumer c1", "migration c2"]


def test_long_names_are_clipped() -> None:
    long = replace(gpu("gpu1", 0, State.ALLOCATED, name="x" * 255), model="m" * 300)
    ((view,),) = (host.gpus for group in host_groups(replace(fleet_of(1, 1), gpus=(long,))) for host in group.hosts)
    assert len(view.uses[0].instance) == len(view.model) == 80
    assert len(view.tip) < 250
    assert isinstance(long.holders[0], Holder)


def test_only_states_that_occur_have_a_column() -> None:
    one = Counts(total=2, free=1, states=Counter({State.ALLOCATED: 1, State.FREE: 1}))
    other = Counts(total=1, free=0, states=Counter({State.RESERVED: 1, State.CLAIMED: 0}))
    assert columns([one, other]) == [State.FREE, State.ALLOCATED, State.RESERVED]
    assert columns([]) == []


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({}, "NUMA node 0, IOMMU group 7, 8.0 GT/s PCIe x16"),
        ({"numa_node": None, "iommu_group": None, "link": ""}, ""),
        ({"service": "down"}, "NUMA node 0, IOMMU group 7, 8.0 GT/s PCIe x16, nova-compute is down"),
        ({"service": "disabled"}, "NUMA node 0, IOMMU group 7, 8.0 GT/s PCIe x16, nova-compute is disabled"),
        ({"service": "up"}, "NUMA node 0, IOMMU group 7, 8.0 GT/s PCIe x16"),
    ],
)
def test_a_gpu_has_its_place_and_the_state_of_its_host(change: dict[str, Any], facts: str) -> None:
    known = {"numa_node": 0, "iommu_group": 7, "link": "8.0 GT/s PCIe x16", "service": "", **change}
    one = replace(gpu("gpu1", 0, State.FREE), **known)
    ((view,),) = (host.gpus for group in host_groups(Fleet(gpus=(one,))) for host in group.hosts)
    assert (view.facts, view.units, view.address) == (facts, "", one.address)


def test_hosts_name_their_models_and_gpus_their_own_on_mixed_ones() -> None:
    alike, other = gpu("gpu1", 0, State.FREE), replace(gpu("gpu1", 1, State.FREE), model="", address="")
    (group,) = host_groups(Fleet(gpus=(alike, alike)))
    assert (group.hosts[0].models, group.hosts[0].gpus[0].facts.count(A100)) == (f"2 {TIMES} {A100}", 0)
    (group,) = host_groups(Fleet(gpus=(alike, other)))
    assert group.hosts[0].models == f"1 {TIMES} {A100}, 1 {TIMES} unknown model"
    assert [view.facts.count(A100) for view in group.hosts[0].gpus] == [1, 0]
    assert group.hosts[0].gpus[1].address == "address unknown"
    (group,) = host_groups(Fleet(gpus=(replace(alike, units=2, used=1),)))
    assert group.hosts[0].gpus[0].units == "1/2"
    nodes = [replace(alike, node=node) for node in ("gpu1.example.org", "")]
    assert [next(host_groups(Fleet(gpus=(entry,)))).hosts[0].node for entry in nodes] == ["gpu1.example.org", "gpu1"]
    (group,) = host_groups(Fleet(gpus=(replace(other, host="", node=""),)))
    assert group.hosts[0].name


def test_the_use_of_a_gpu_names_instance_project_and_time() -> None:
    since = datetime(2026, 11, 22, 18, 4)  # noqa: DTZ001 - naive UTC
    running = Holder(consumer="vm1", server=server("vm1", "gpu1", since=since), project="p1", user="u1")
    unnamed = replace(running, server=server("vm1", "gpu1", name=""), migration=True)
    one = replace(gpu("gpu1", 0, State.ALLOCATED), holders=(running, unnamed))
    fleet = Fleet(gpus=(one,), projects={"p1": "research"}, users={})
    ((view,),) = (host.gpus for group in host_groups(fleet) for host in group.hosts)
    first, second = view.uses
    assert (first.instance, first.about, first.project, first.user) == ("VM1", "g1, ACTIVE, vm1", "research", "u1")
    assert first.since == "2026-11-22 18:04"
    assert (second.instance, second.about, second.since) == ("vm1", "g1, ACTIVE, moving", "")

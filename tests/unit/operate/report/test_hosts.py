"""Hosts in groups, and counts that are never shown as complete if they are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gpustack.fleet.answers import Answers
from gpustack.fleet.join import join
from gpustack.fleet.model import Holder, State
from gpustack.operate.report.hosts import GROUP, Counts, host_groups, summed
from support.fleet_answers import facts, server
from support.fleets import fleet_of, gpu


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
    assert view.tip.startswith("0000:17:00.0 3/8 allocated: consumer c0")
    assert view.tip.endswith("and 1 more")
    assert [use.instance for use in view.uses] == ["consumer c0", "consumer c1", "migration c2"]


def test_long_names_are_clipped() -> None:
    long = replace(gpu("gpu1", 0, State.ALLOCATED, name="x" * 255), model="m" * 300)
    ((view,),) = (host.gpus for group in host_groups(replace(fleet_of(1, 1), gpus=(long,))) for host in group.hosts)
    assert len(view.uses[0].instance) == len(view.model) == 80
    assert len(view.tip) < 250
    assert isinstance(long.holders[0], Holder)

"""Sums by host, model and project."""

from __future__ import annotations

from gpustack.fleet.index import Answers
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, State
from gpustack.fleet.placement import Consumer
from gpustack.fleet.summary import Group, by_project, grouped
from support.fleet_answers import device, facts, server


def sums(groups: list[Group]) -> dict[str, tuple[int | None, int | None, int]]:
    return {group.name: (group.total, group.free, group.states[State.ALLOCATED]) for group in groups}


def placed(*, holders: bool = True) -> Fleet:
    """Three GPUs, of which a project has one; the third is held by somebody unknown."""
    devices = (device("gpu1", 0x81, used=1), device("gpu1", 0x82), device("gpu2", 0x81, used=1))
    consumer = Consumer(uuid="vm1", project="p1", user="u1", devices={"gpu1-81": 1})
    consumers = {"vm1": consumer} if holders else None
    return join(Answers(devices=devices, servers=(server("vm1", "gpu1"),), consumers=consumers))


def test_by_host_and_model() -> None:
    assert sums(grouped(placed(), "host")) == {"gpu1": (2, 1, 1), "gpu2": (1, 0, 1)}
    assert sums(grouped(placed(), "model")) == {"NVIDIA Quadro K4200": (3, 1, 2)}


def test_by_project_from_holders_and_from_flavors() -> None:
    assert {name: total for name, (total, _free, _used) in sums(grouped(placed(), "project")).items()} == {
        "p1": 1,
        "": 1,
    }
    assert {group.name: group.total for group in by_project(placed(holders=False))} == {"p1": 1, "": 1}


def test_virtual_functions_are_counted_one_by_one() -> None:
    fleet = join(Answers(devices=(device("gpu1", 0x81, capacity=8, used=3),)))
    assert sums(grouped(fleet, "host")) == {"gpu1": (8, 5, 3)}


def test_unknown_numbers_stay_unknown() -> None:
    instances = (server("vm1", "gpu1"), server("vm2", "gpu2"))
    fleet = join(Answers(servers=instances, hosts=(facts("gpu1", 0x81, 0x82),)))
    assert sums(grouped(fleet, "host")) == {"gpu1": (2, 1, 1), "gpu2": (None, None, 1)}
    assert sums(grouped(fleet, "model")) == {"k4200": (None, None, 2)}


def test_sums_of_models_are_unknown_if_idle_hosts_may_be_missing() -> None:
    fleet = join(Answers(servers=(server("vm1", "gpu1"),), hosts=(facts("gpu1", 0x81, 0x82), facts("gpu2", 0x81))))
    assert sums(grouped(fleet, "host")) == {"gpu1": (2, 1, 1)}
    assert sums(grouped(fleet, "model")) == {"k4200": (None, None, 1)}

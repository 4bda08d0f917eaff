"""Streams of requests from a mix or a CSV file; malformed input is refused with its place."""

from __future__ import annotations

import math

import pytest

from gpustack.operate.capacity.model import Demand
from gpustack.operate.capacity.stream import Request, flavors, mix_of, poisson, recorded

DEMANDS = {
    name: Demand(flavor=name, gpus={"k4200": count}, amounts={}, vcpus=1, ram=1)
    for name, count in (("g1", 1), ("g:8", 8))
}


def test_a_mix_may_have_names_with_colons() -> None:
    assert mix_of("g1:50, g:8:0.5") == {"g1": 50, "g:8": 0.5}


@pytest.mark.parametrize("text", ["", "g1", "g1:", ":5", "g1:0", "g1:-1", "g1:nan", "g1:inf", "g1:1,g1:2", "g1:5,"])
def test_a_malformed_mix_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not FLAVOR:PART"):
        mix_of(text)


def test_the_parts_of_a_mix_are_those_of_the_requests() -> None:
    stream = poisson({"g1": 3, "g:8": 1}, DEMANDS, held=8, life=10, number=4000, seed=7)
    assert sum(request.demand.flavor == "g1" for request in stream) / 4000 == pytest.approx(0.75, abs=0.03)
    assert [request.time for request in stream] == sorted(request.time for request in stream)


def test_flavors_of_a_stream_are_sorted_by_their_gpus() -> None:
    names = ("g8", "b1", "a1", "g8", "a1")
    stream = [
        Request(time=0, life=1, demand=Demand(flavor=name, gpus={"k4200": int(name[1])}, amounts={}, vcpus=1, ram=1))
        for name in names
    ]
    assert [demand.flavor for demand in flavors(stream)] == ["a1", "b1", "g8"]


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_the_offered_load_is_that_of_the_stream(load: float) -> None:
    stream = poisson({"g1": 3, "g:8": 1}, DEMANDS, held=256 * load, life=100, number=8000, seed=1)
    offered = sum(request.demand.count * request.life for request in stream) / stream[-1].time
    assert offered / 256 == pytest.approx(load, rel=0.1)


def test_a_recorded_stream_is_read_in_the_order_of_time() -> None:
    stream = recorded(["time,flavor,life,note", "5,g1,2.5,x", "1,g:8,,y", "0,g1,0,z"], DEMANDS, "r.csv")
    assert [(r.time, r.demand.flavor, r.life) for r in stream] == [(0, "g1", 0), (1, "g:8", math.inf), (5, "g1", 2.5)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "r.csv: there is no column flavor"),
        (["time,flavor", "1,g1"], "r.csv: there is no column life"),
        (["time,flavor,life", "1,g2,5"], "r.csv:2: the spec has no flavor 'g2'"),
        (["time,flavor,life", "1,g1,5", "x,g1,5"], "r.csv:3: the time 'x' is no number"),
        (["time,flavor,life", "1,g1,-5"], "r.csv:2: the life '-5' is no number"),
        (["time,flavor,life", "inf,g1,5"], "r.csv:2: the time 'inf' is no number"),
        (["time,flavor,life", "1"], "r.csv:2: the spec has no flavor None"),
    ],
)
def test_malformed_lines_are_refused_with_their_number(lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        recorded(lines, DEMANDS, "r.csv")

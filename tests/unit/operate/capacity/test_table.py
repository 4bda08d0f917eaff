"""Numbers and reasons in words: a number that is not certain is never shown alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.base.columns import described
from gpustack.operate.capacity.model import Capacity, Demand, HostCapacity, Limit, Reason
from gpustack.operate.capacity.table import COLUMNS, HOST_COLUMNS, fits, limit_text

DEMAND = Demand(flavor="g8", gpus={"k4200": 8}, amounts={}, vcpus=8, ram=1)


def text_row(entry: Capacity) -> list[object]:
    return [column.cell(entry) for column in COLUMNS if column.title]


def capacity(least: int, most: int | None, *limits: Limit) -> Capacity:
    hosts = (
        HostCapacity(host="gpu1", fits=1, left=4, reason=Reason.FRAGMENTS),
        HostCapacity(host="gpu2", zone="az1", fits=2),
    )
    return Capacity(demand=DEMAND, least=least, most=most, free=32, hosts=hosts, limits=limits, doubts=("unsure",))


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [(3, 3, "3"), (0, 0, "0"), (0, 3, "at most 3"), (3, None, "at least 3"), (0, None, "unknown")],
)
def test_an_uncertain_number_is_marked(least: int, most: int | None, text: str) -> None:
    assert fits(capacity(least, most)) == text
    assert tuple(described(COLUMNS, capacity(least, most)).values())[2:4] == (least, most)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(reason=Reason.FRAGMENTS, gpus=32, hosts=("a",), most=4), "32 GPUs free, none in a group of 8"),
        (Limit(reason=Reason.RESERVED, gpus=1, hosts=("gpu1",), most=1), "1 GPU: reserved (gpu1)"),
        (
            Limit(reason=Reason.RAM, gpus=9, hosts=("a", "b", "c", "d", "e"), most=2),
            "9 GPUs: too little RAM (a, b, c and 2 more)",
        ),
    ],
)
def test_reasons_in_words(limit: Limit, text: str) -> None:
    assert limit_text(limit, DEMAND) == text


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words(reason: Reason) -> None:
    limit = Limit(reason=reason, gpus=2, hosts=("gpu1",), most=2)
    assert text_row(capacity(1, 1, limit))[4] == limit_text(limit, DEMAND)


def test_rows_of_hosts_have_the_reason_of_each() -> None:
    assert [tuple(c.cell((DEMAND, host)) for c in HOST_COLUMNS) for host in capacity(3, 3).hosts] == [
        ("g8", "gpu1", "-", 1, 4, "fewer than 8 GPUs left"),
        ("g8", "gpu2", "az1", 2, 0, "-"),
    ]


def test_unknown_gpus_are_not_a_complete_number() -> None:
    assert text_row(capacity(3, None))[3] == "at least 32"
    doubted = replace(capacity(0, 3), free_is_limit=True)
    assert text_row(doubted)[3] == "at most 32"
    assert text_row(replace(doubted, most=None))[3] == "unknown"
    exact = [described(COLUMNS, c)["free_gpus_exact"] for c in (capacity(3, 3), doubted)]
    assert exact == [True, False]

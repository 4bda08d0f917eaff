"""Whether there is room for guests, by what Placement has."""

from __future__ import annotations

import pytest

from gpustack.cloud.placement import Room
from gpustack.prepare.drain.capacity import lacking
from gpustack.prepare.drain.steps import LiveMigrate

SMALL, BIG = {"MEMORY_MB": 100, "VCPU": 1}, {"MEMORY_MB": 900, "VCPU": 1}


def free(*memory: int, vcpus: int = 8, whole: bool = True) -> Room:
    return Room(free={f"p{n}": {"MEMORY_MB": amount, "VCPU": vcpus} for n, amount in enumerate(memory)}, whole=whole)


@pytest.mark.parametrize(
    ("needs", "rooms", "expected"),
    [
        ([], [], []),
        ([SMALL], [free(100)], []),
        ([SMALL, BIG], [free(100), Room()], ["gpu1 b (b): 900 MEMORY_MB, 1 VCPU needed, and no other open host"]),
        (
            [BIG, BIG],
            [free(1000, 799)] * 2,
            ["gpu1 2 guests: 1800 MEMORY_MB needed, and all others that"],
        ),
        # It may not fit, but that is for the scheduler to say.
        ([BIG, BIG], [free(1000, 800)] * 2, []),
        ([BIG, BIG], [free(1000, 0, whole=False)] * 2, []),
        ([{**SMALL, "DISK_GB": 9}] * 2, [Room(free={"p": SMALL, "q": SMALL, "pool": {"DISK_GB": 9}})] * 2, []),
        ([SMALL, BIG], [free(100), Room(free={"other": {"MEMORY_MB": 900, "VCPU": 8}})], []),
        (
            [SMALL, SMALL],
            [free(1000, vcpus=1)] * 2,
            ["gpu1 2 guests: 2 VCPU needed, and all others that are open"],
        ),
    ],
)
def test_room(needs: list[dict[str, int]], rooms: list[Room], expected: list[str]) -> None:
    moves = [LiveMigrate(server=name, name=name, why="") for name in "abc"]
    findings = lacking("gpu1", list(zip(moves, needs, rooms, strict=False)))
    assert {finding.code for finding in findings} <= {"GPU619"}
    assert len(findings) == len(expected)
    for finding, text in zip(findings, expected, strict=True):
        assert f"{finding.place}: {finding.message}".startswith(text)

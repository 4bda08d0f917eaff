"""The rules of server groups and hints about the hosts of other instances."""

from __future__ import annotations

import pytest

from gpustack.cloud.boot import ServerGroup
from gpustack.operate.why.neighbors import neighbors

PLACED = {"a": "gpu1", "b": "gpu1", "c": "gpu2"}
"""The hosts of instances; ``d`` has none."""
HOSTS = ("gpu1", "gpu2", "gpu3")


def group(policy: str, *members: str, most: int = 1) -> ServerGroup:
    return ServerGroup(name="g", policy=policy, members=members, most=most)


@pytest.mark.parametrize(
    ("groups", "hints", "host", "accepting"),
    [
        ([group("anti-affinity", "a", "d")], {}, "", {"gpu2", "gpu3"}),
        ([group("anti-affinity", "a", "b", "c", most=2)], {}, "", {"gpu2", "gpu3"}),
        ([group("anti-affinity", "a", "c")], {}, "gpu1", {"gpu1", "gpu3"}),
        ([group("affinity", "a", "d")], {}, "", {"gpu1"}),
        ([group("affinity", "d")], {}, "", {"gpu1", "gpu2", "gpu3"}),
        ([group("soft-anti-affinity", "a", "b", "c")], {}, "", {"gpu1", "gpu2", "gpu3"}),
        ([], {"different_host": ("A",)}, "", {"gpu2", "gpu3"}),
        ([], {"same_host": ("a", "c")}, "", {"gpu1", "gpu2"}),
        ([], {"same_host": ("gone",)}, "", set()),
        ([group("affinity", "a")], {"different_host": ("b",)}, "", set()),
        ([], {"query": ("[]",)}, "", {"gpu1", "gpu2", "gpu3"}),
    ],
)
def test_hosts_are_accepted_as_by_novas_filters(
    groups: list[ServerGroup], hints: dict[str, tuple[str, ...]], host: str, accepting: set[str]
) -> None:
    rules = neighbors(host, groups, hints, PLACED)
    assert {name for name in HOSTS if all(rule.accepts(name) for rule in rules)} == accepting


def test_rules_name_the_filter_and_the_group() -> None:
    (apart, hint) = neighbors("", [group("anti-affinity", "a", most=3)], {"same_host": ("c",)}, PLACED)
    assert (apart.step, apart.wanted) == (
        "ServerGroupAntiAffinityFilter",
        "fewer than 3 instances of the server group g",
    )
    assert (hint.step, hint.wanted) == ("SameHostFilter", "a host with instances of the hint same_host")

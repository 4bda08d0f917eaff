"""The order of hosts by the weights of Nova's scheduler."""

from dataclasses import dataclass

import pytest

from gpustack.operate.capacity.weights import Multipliers, chosen, weights


@dataclass
class Free:
    ram: float = 0
    cpus: float = 0
    disk: float = 0
    free: int = 0


def test_a_single_host_has_no_weight() -> None:
    assert weights([Free(ram=5)], Multipliers()) == [0.0]
    assert weights([], Multipliers()) == []


@pytest.mark.parametrize("name", ["ram", "cpu", "disk"])
def test_most_free_resources_win_by_default(name: str) -> None:
    field = {"cpu": "cpus"}.get(name, name)
    hosts = [Free(**{field: value}) for value in (10, 40, 20)]
    only = Multipliers(**{other: float(other == name) for other in ("ram", "cpu", "disk", "pci")})
    assert weights(hosts, only) == [0.25, 1.0, 0.5]
    assert chosen(hosts, only) == 1


def test_negative_resources_count_as_none() -> None:
    for field in ("ram", "cpus", "disk"):
        hosts = [Free(**{field: -5}), Free(**{field: 10})]
        assert weights(hosts, Multipliers()) == [0.0, 1.0]


def test_fewer_free_devices_win_and_are_scaled_from_the_least() -> None:
    hosts = [Free(free=8), Free(free=4), Free(free=200)]
    only = Multipliers(ram=0, cpu=0, disk=0)
    assert weights(hosts, only) == [pytest.approx(91 / 95), 1.0, 0.0]
    assert chosen(hosts, only) == 1


def test_the_first_of_equal_hosts_is_chosen() -> None:
    assert chosen([Free(), Free()], Multipliers()) == 0

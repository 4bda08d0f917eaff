"""Leaks that a real Nova makes, found, repaired, and gone by Nova's own word."""

from __future__ import annotations

import pytest
from cloudworld import World
from conftest import WORLDS

pytestmark = pytest.mark.parametrize("cloud", WORLDS, indirect=True)


def test_the_two_gpus_of_an_old_host_after_an_evacuation(world: World) -> None:
    old, new = world.hosts(2)
    server = world.boot(old, 2)
    world.die(old)
    server = world.evacuate(server, new)
    assert not world.starts(server)  # the symptom: KeyError in the API, since Zed
    assert world.plan() == [f"A stale {old} free"] * 2

    world.apply()

    assert world.plan() == []
    assert [status for _address, status, _owner in world.rows(old)] == ["available"] * 2
    world.state(server, "start", "ACTIVE")
    world.back(old)
    world.agrees(old, server)

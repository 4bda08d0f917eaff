"""One Nova for nearly all tests of hosts in service; each test leaves it empty."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.embedded.nova import Nova

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "flavor")]

from serviceworld import CONFIG, RELEASES, World, flavors, nova_hosts  # noqa: E402 - it lies beside this file


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Nova(RELEASES[0], hosts=nova_hosts(), config=[CONFIG]) as nova, nova.connection() as cloud:
        yield World(nova=nova, cloud=cloud, path=tmp_path_factory.mktemp("service"), flavors=flavors(cloud))


@pytest.fixture
def world(running: World) -> Iterator[World]:
    yield running
    running.clear()

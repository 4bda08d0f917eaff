"""One Nova for all tests of hosts in service; each test leaves it empty."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.embedded.nova import Nova

sys.path.insert(0, str(Path(__file__).parent))

from serviceworld import CONFIG, World, flavors, nova_hosts


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Nova("2025.2", hosts=nova_hosts(), config=[CONFIG]) as nova, nova.connection() as cloud:
        yield World(nova=nova, cloud=cloud, path=tmp_path_factory.mktemp("service"), flavors=flavors(cloud))


@pytest.fixture
def world(running: World) -> Iterator[World]:
    yield running
    running.clear()

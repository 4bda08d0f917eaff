"""One Nova for nearly all tests of hosts in service; each test leaves it empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpustack_demo.embedded.nova import EmbeddedNova
from support.maintenance_world import CONFIG, RELEASES, World, flavors, nova_hosts


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with EmbeddedNova(RELEASES[0], hosts=nova_hosts(), config=[CONFIG]) as nova, nova.connection() as cloud:
        yield World(nova=nova, cloud=cloud, path=tmp_path_factory.mktemp("service"), flavors=flavors(cloud))


@pytest.fixture
def world(running: World) -> Iterator[World]:
    yield running
    running.clear()

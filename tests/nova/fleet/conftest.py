"""A real Nova for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clouds import running
from support.cloudworld import World


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The Nova that the module's tests share: release, PCI in Placement, and perhaps a real Keystone."""
    release, placement, *more = request.param
    directory = tmp_path_factory.mktemp("ssh")
    with running(release, placement, None, directory, keystone="keystone" in more) as world:
        yield world


@pytest.fixture
def world(cloud: World) -> Iterator[World]:
    """The shared Nova; what the test made is gone afterwards."""
    yield cloud
    cloud.tidy()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """openstacksdk and keystoneauth warn of their own ways."""
    for item in items:
        for warning in ("ignore::PendingDeprecationWarning", "ignore::ResourceWarning"):
            item.add_marker(pytest.mark.filterwarnings(warning))

"""A real Nova with limits in Keystone for all tests with the same release and stage of PCI in Placement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.quota_cloud import QuotaWorld, quota_world


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaWorld]:
    """The cloud that tests share: a release, and the stage of PCI in Placement."""
    release, placement = request.param
    with quota_world(release, placement, tmp_path_factory.mktemp("quota")) as world:
        yield world


@pytest.fixture
def world(cloud: QuotaWorld) -> Iterator[QuotaWorld]:
    """The shared cloud; what the test made is gone afterwards."""
    yield cloud
    cloud.tidy()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """openstacksdk and keystoneauth warn of their own ways."""
    for item in items:
        for warning in ("ignore::PendingDeprecationWarning", "ignore::ResourceWarning"):
            item.add_marker(pytest.mark.filterwarnings(warning))

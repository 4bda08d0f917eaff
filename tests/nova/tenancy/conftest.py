"""A real Nova with a GPU host and an ordinary host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.tenancy_cloud import Reserved, reserved_world


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reserved]:
    """The cloud of a release."""
    with reserved_world(request.param, tmp_path_factory.mktemp("tenancy")) as world:
        yield world


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """openstacksdk and keystoneauth warn of their own ways."""
    for item in items:
        for warning in ("ignore::PendingDeprecationWarning", "ignore::ResourceWarning"):
            item.add_marker(pytest.mark.filterwarnings(warning))

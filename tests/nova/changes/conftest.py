"""A real cloud behind proxies, with the state of a spec."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.changing_cloud import BEFORE, ChangingCloud, changing_cloud


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangingCloud]:
    """The cloud of a release."""
    with changing_cloud(request.param, tmp_path_factory.mktemp("changes")) as world:
        world.applied(BEFORE)
        yield world


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """openstacksdk and keystoneauth warn of their own ways; tests fork while proxies run in threads."""
    for item in items:
        for warning in ("PendingDeprecationWarning", "ResourceWarning", "DeprecationWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))

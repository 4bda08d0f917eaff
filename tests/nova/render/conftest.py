"""Real Nova of 2025.2 and 2026.2, or of what ``GPUSTACK_NOVA_RELEASES`` names (``all``: what fits this machine)."""

import os
from pathlib import Path

import pytest

from gpustack_demo.embedded.releases import available


def _chosen() -> list[str]:
    releases = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
    return [entry.name for entry in available() if releases == ["all"] or entry.name in releases]


@pytest.fixture(scope="module", params=_chosen())
def release_name(request: pytest.FixtureRequest) -> str:
    return request.param


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What openstacksdk warns of in its own code is not ours to mend."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for warning in ("openstack.warnings.RemovedInSDK50Warning", "openstack.warnings.RemovedInSDK60Warning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))

"""Real Nova of several releases: 2025.2 and 2026.2, or what ``GPUSTACK_NOVA_RELEASES`` names (``all``: what fits)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpustack_demo.embedded.releases import available, release


def _chosen() -> list[str]:
    releases = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
    return [entry.name for entry in available()] if releases == ["all"] else releases


@pytest.fixture(scope="module", params=_chosen())
def release_name(request: pytest.FixtureRequest) -> str:
    """A release, by name."""
    if release(request.param).interpreter() is None:
        pytest.skip(f"no Python {' or '.join(release(request.param).python)} here")
    return request.param


@pytest.fixture(scope="session")
def report():
    """Tells on stderr what takes minutes: the first time, an environment is installed."""
    return lambda text: print(text, file=sys.stderr, flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What openstacksdk warns of in its own code is not ours to mend."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for warning in ("openstack.warnings.RemovedInSDK50Warning", "openstack.warnings.RemovedInSDK60Warning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))

"""Each test with one release of Nova; with every one that ``GPUSTACK_NOVA_RELEASES`` names (``make test-all``)."""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

_FEW = 5
"""A module with fewer tests starts one Nova for all of them."""
_WORLD = re.compile(r"\b(20\d\d\.\d|yoga)(-(placement|off|schedule|mariadb|postgresql|keystone))*\b")
"""A cloud in the name of a test."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of the tests that differ between clouds."""
    config.addinivalue_line(
        "markers",
        "every_release: run it on each release: the clouds differ in its result, or no other test makes the leak",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the same test with another release; its name chooses, so that a new test changes nothing for others.

    A test that is named on the command line runs.
    """
    if "GPUSTACK_NOVA_RELEASES" in os.environ or any("::" in argument for argument in config.args):
        return
    clouds: defaultdict[tuple[Path, str], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if (match := _match(item)) is not None:
            clouds[item.path, item.name.replace(match[0], "")][match[0]] = item
    tests = Counter(path for path, _test in clouds)
    others = set()
    for (path, test), by_cloud in clouds.items():
        chooser = path.name if tests[path] < _FEW else test
        chosen = sorted(by_cloud)[zlib.crc32(chooser.encode()) % len(by_cloud)]
        others |= {item for cloud, item in by_cloud.items() if cloud != chosen}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


def _match(item: pytest.Item) -> re.Match[str] | None:
    """The cloud of a test that shares one; None if the test runs in each of its clouds."""
    if not item.path.is_relative_to(Path(__file__).parent) or item.get_closest_marker("every_release"):
        return None
    fixtures = getattr(item, "fixturenames", ())
    return _WORLD.search(item.name) if {"cloud", "release_name"} & set(fixtures) else None

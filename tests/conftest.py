"""Order of the tests, and one report for a part that does not start.

The last tests of a run keep one worker busy while the others idle, so the files whose tests take longest come first.
``costs.json`` has the seconds of each file; ``GPUSTACK_COSTS=write`` updates it.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from gpustack.base import known_secrets, silence
from gpustack.base.errors import GpustackError
from gpustack.base.files import collection_dir
from gpustack.cloud import session

_HERE = Path(__file__).parent
_COSTS = _HERE / "costs.json"
_LEAST = 2.0
"""Seconds below which a file is not written down."""
_NOVA = 5.0
"""Seconds of a test with real Nova, until its file's are known."""
_spent: Counter[str] = Counter()
_broken: dict[str, str] = {}


if not (collection_dir() / "plugins/plugin_utils").is_dir():  # an environment from before the collection
    subprocess.run([sys.executable, _HERE.parent / "tools/collection", "--link"], check=True)
_STATE = tempfile.mkdtemp(prefix="gpustack-state-")
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE  # records of this run, not of the user
os.environ.pop("COLUMNS", None)  # help is as wide as without a terminal
os.umask(0o022)  # the modes of files that tests expect
# What is installed does not change: to read it takes 30 ms for each command that a test runs, most of a short one.
_installed = functools.cache(importlib.metadata.entry_points)
importlib.metadata.entry_points = functools.cache(  # type: ignore[assignment]
    lambda **selection: _installed().select(**selection)
)


def pytest_configure() -> None:
    from support import documents, reported

    documents.install()
    reported.install()


def pytest_runtest_teardown() -> None:
    """Forget what a test left, as the command does at its end.

    Another test's errors have no mask, its cloud may have the same name, and its services were not silent.
    """
    known_secrets.forget()
    silence.forget()
    session.disconnect()


def _file(nodeid: str) -> str:
    return nodeid.split("::")[0].removeprefix("tests/")


def _group(nodeid: str) -> str:
    """The tests that share what is expensive to start: a module's Nova of one release, or database server."""
    name = _file(nodeid)
    if name.startswith("nova/maintenance/") and name != "nova/maintenance/test_batches.py":
        return "nova/maintenance"  # one Nova for all
    match = re.search(r"\[.*?\b(20\d\d\.\d(?:-(?:off|schedule))?|yoga|mariadb|postgresql)\b", nodeid)
    return f"{name} {match[1]}" if match else name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that take longest first, and of tests with Nova the groups; the order within these stays."""
    costs: dict[str, float] = json.loads(_COSTS.read_text(encoding="utf-8"))
    tests = Counter(_file(item.nodeid) for item in items)
    groups = Counter(_group(item.nodeid) for item in items)

    def cost(item: pytest.Item) -> float:
        name, group = _file(item.nodeid), _group(item.nodeid)
        if name.startswith("nova/"):
            return -costs.get(name, _NOVA * tests[name]) / tests[name] * groups[group]
        return -costs.get(name, 0.0) / tests[name]

    items.sort(key=cost)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """With ``--dist loadfile``, a worker takes a group."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Skip the tests that need a part which already failed to start, with the reason of the first failure."""
    report = yield
    if call.when != "setup":
        return report
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, GpustackError):
        text = error.what.splitlines()[0]
        first = _broken.setdefault(text, item.nodeid)
        if first != item.nodeid:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {text} (reported by {first})")
    elif error is None:  # what failed once has started now, in a rerun
        for text in [text for text, first in _broken.items() if first == item.nodeid]:
            del _broken[text]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time to the file's."""
    _spent[_file(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the costs of the files that ran, on request."""
    if os.environ.get("GPUSTACK_COSTS") != "write" or hasattr(session.config, "workerinput"):
        return
    costs = json.loads(_COSTS.read_text(encoding="utf-8")) if _COSTS.exists() else {}
    costs.update({name: round(seconds) for name, seconds in _spent.items()})
    retained = {name: cost for name, cost in sorted(costs.items()) if cost >= _LEAST and (_HERE / name).exists()}
    _COSTS.write_text(json.dumps(retained, indent=1) + "\n", encoding="utf-8")

"""A pytest plug-in that records which tests run each line of some files, the quickest first.

``GPUSTACK_LINES`` names the output and the files:

GPUSTACK_LINES=out.json:/a/x.py:/a/y.py pytest -p support.lines …
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_OUT, *_FILES = os.environ["GPUSTACK_LINES"].split(":")
_RUN: dict[str, dict[int, dict[str, None]]] = {name: {} for name in _FILES}
_SECONDS: dict[str, float] = defaultdict(float)
_test = ""


def _enter(frame: FrameType, event: str, argument: Any) -> Any:
    lines = _RUN.get(frame.f_code.co_filename)
    if lines is None:
        return None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        lines.setdefault(frame.f_lineno, {})[_test] = None
        return step

    return step(frame, event, argument)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record from the first test on: lines of an import are no evidence that a test uses them."""
    global _test
    _test = item.nodeid
    if sys.gettrace() is None:
        sys.settrace(_enter)
        threading.settrace(_enter)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of a test's step."""
    _SECONDS[report.nodeid] += report.duration


def pytest_sessionfinish() -> None:
    """Write the lines of each file with their tests."""
    sys.settrace(None)
    found = {
        name: {line: sorted(run, key=_SECONDS.__getitem__) for line, run in by.items()} for name, by in _RUN.items()
    }
    Path(_OUT).write_text(json.dumps(found), encoding="utf-8")

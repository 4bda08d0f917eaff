"""A pytest plug-in that records which tests run each line of some files: ``GPUSTACK_LINES`` names files and output.

GPUSTACK_LINES=out.json:/a/x.py:/a/y.py pytest -p support.lines …
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_OUT, *_FILES = os.environ["GPUSTACK_LINES"].split(":")
_RUN: dict[str, dict[int, dict[str, None]]] = {name: {} for name in _FILES}
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


def pytest_sessionfinish() -> None:
    """Write the lines of each file with their tests."""
    sys.settrace(None)
    found = {name: {line: list(tests) for line, tests in lines.items()} for name, lines in _RUN.items()}
    Path(_OUT).write_text(json.dumps(found), encoding="utf-8")

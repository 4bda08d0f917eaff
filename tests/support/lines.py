"""A pytest plug-in that records which lines of some files run: ``GPUSTACK_LINES`` names the files and the output.

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

_OUT, *_FILES = os.environ["GPUSTACK_LINES"].split(":")
_RUN: dict[str, set[int]] = {name: set() for name in _FILES}


def _enter(frame: FrameType, event: str, argument: Any) -> Any:
    lines = _RUN.get(frame.f_code.co_filename)
    if lines is None:
        return None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add(frame.f_lineno)
        return step

    lines.add(frame.f_lineno)
    return step


def pytest_runtest_setup() -> None:
    """Record from the first test on: lines of an import are no evidence that a test uses them."""
    if sys.gettrace() is None:
        sys.settrace(_enter)
        threading.settrace(_enter)


def pytest_sessionfinish() -> None:
    """Write the lines of each file."""
    sys.settrace(None)
    Path(_OUT).write_text(json.dumps({name: sorted(lines) for name, lines in _RUN.items()}), encoding="utf-8")

"""Verdicts of clean-up as data: each file in ``tests/unit/repair/cases`` has rows and the expected verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

CASES = [
    pytest.param(case, id=f"{path.stem}: {case['case']}")
    for path in sorted((Path(__file__).parents[1] / "unit/repair/cases").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8"))
]

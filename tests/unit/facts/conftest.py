"""Lets the tests of this directory import the builder of fake roots beside them, and Hypothesis take its time."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("untimed", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("untimed")

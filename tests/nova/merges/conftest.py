"""Lets the tests of this directory import what lies beside them, and the renderings of the unit tests."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "unit" / "nova")]

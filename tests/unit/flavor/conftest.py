"""Makes the model of Nova beside the tests importable, and lets Hypothesis take its time."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("untimed", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("untimed")

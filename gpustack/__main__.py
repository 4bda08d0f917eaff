"""``python -m gpustack``: the same as the command ``gpustack``."""

import os.path
import sys

_PARENT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - pathlib is not loaded yet
if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != _PARENT:
    # `-m` puts the current directory first in sys.path, so a yaml.py beside a spec would run.
    del sys.path[0]

from gpustack.cli.app import main  # noqa: E402 - after sys.path is cleaned

sys.exit(main())

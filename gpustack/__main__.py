"""``python -m gpustack``: the same as the command ``gpustack``."""

import sys

from gpustack.cli.app import main

sys.exit(main())

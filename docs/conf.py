"""Sphinx configuration. Pages under ``reference/generated`` are made from the code at each build."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from gpustack import __version__

project = "gpustack"
author = "The gpustack authors"
copyright = "2026, The gpustack authors"  # noqa: A001
release = version = __version__

extensions = ["myst_parser", "generated", "drawings"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"gpustack {release}"
html_static_path = ["_static"]
html_css_files = ["gpustack.css"]

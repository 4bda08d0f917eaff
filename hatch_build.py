"""Project URLs and the description of the distribution, for a package index.

GPUSTACK_REPOSITORY is the address of the repository, for example https://github.com/OWNER/NAME, and
GPUSTACK_DOCUMENTATION the one of the published pages; the release workflow sets them. Without them, the metadata name
no address.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(\]\()(?![a-z]+:)([^)\s]+)\)")


class Metadata(MetadataHookInterface):
    """Sets ``readme`` and ``urls``."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields to the metadata of ``[project]``."""
        repository = os.environ.get("GPUSTACK_REPOSITORY", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:
            text = absolute(text, f"{repository}/blob/v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        urls = {
            "Documentation": os.environ.get("GPUSTACK_DOCUMENTATION", ""),
            "Source": repository,
            "Issues": repository and f"{repository}/issues",
            "Changelog": repository and f"{repository}/blob/v{metadata['version']}/CHANGELOG.md",
        }
        metadata["urls"] = {name: url for name, url in urls.items() if url}


def absolute(text: str, root: str) -> str:
    """Markdown whose relative links point below an address; anchors point into the README there."""
    return _LINK.sub(lambda link: f"{link[1]}{root}/{'README.md' if link[2][0] == '#' else ''}{link[2]})", text)


def get_metadata_hook() -> type[MetadataHookInterface]:
    """The class that hatchling loads."""
    return Metadata

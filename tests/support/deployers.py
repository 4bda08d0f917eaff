"""kolla-ansible and kayobe, unpacked from PyPI into gpustack's cache.

``python tests/support/deployers.py`` prepares it ahead of its first use. Only their Ansible plugins and files are
used, with the ansible-core of the tests, so that none of their dependencies are installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from gpustack_demo.embedded.environment import locked
from gpustack_demo.embedded.releases import cache_dir

REQUIREMENTS = Path(__file__).parents[1] / "nova" / "merges" / "requirements.txt"


def ensure() -> Path:
    """The directory of the packages, created if needed."""
    name = f"deployers-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    path = cache_dir() / name
    with locked(path.parent / f"{name}.lock"):
        if not (path / "complete").exists():
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
            options = ["--require-hashes", "--no-compile", "--upgrade", "--target", str(path), "-r", str(REQUIREMENTS)]
            subprocess.run([*pip, *options], check=True)
            (path / "complete").touch()
    return path


if __name__ == "__main__":
    print(ensure())

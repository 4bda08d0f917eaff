"""kolla-ansible and kayobe, unpacked from PyPI into gpustack's cache.

``python tests/nova/merges/deployers.py`` makes it ahead of its first use. Only their Ansible plugins and files are run,
on the ansible-core of the tests, so that nothing else of theirs is installed.
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
    """The directory that the packages are in."""
    name = f"deployers-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    path = cache_dir() / name
    with locked(path.parent / f"{name}.lock"):
        if not (path / "complete").exists():
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
            words = ["--require-hashes", "--no-compile", "--upgrade", "--target", str(path), "-r", str(REQUIREMENTS)]
            subprocess.run([*pip, *words], check=True)
            (path / "complete").touch()
    return path


if __name__ == "__main__":
    print(ensure())

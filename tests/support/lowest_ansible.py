"""The lowest ansible-core that the playbooks support, beside the one in ``.venv``.

Only its own package differs: its dependencies are those of the newest one, so one wheel without dependencies is enough.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gpustack_demo.embedded.releases import cache_dir

ROOT = Path(__file__).parents[2]
SHA256 = "d7a32ba0f96f9c6582b7ff159a4a6f0e694662cfc4840497c88fed63bf58cd14"
NEWEST_PYTHON = (3, 12)
"""Of a controller with ansible-core 2.16."""


def version() -> str:
    """The lowest version in ``pyproject.toml``."""
    found = re.search(r'"ansible-core>=([\d.]+),', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def lowest_ansible() -> Path:
    """Install it into the cache, and return the directory for ``PYTHONPATH``."""
    place = cache_dir() / f"ansible-core-{version()}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as directory:
            requirements = Path(directory) / "requirements.txt"
            requirements.write_text(f"ansible-core=={version()} --hash=sha256:{SHA256}\n", encoding="utf-8")
            target = Path(directory) / "packages"
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes")
            subprocess.run([*pip, "--target", target, "-r", requirements], check=True, stdin=subprocess.DEVNULL)
            try:
                target.rename(place)
            except OSError:  # another process was faster
                assert place.is_dir()
    return place


def environment_of(ansible: str) -> dict[str, str]:
    """The variables with which ``ansible-playbook`` of ``.venv`` runs as ``lowest`` or ``newest``."""
    return {"PYTHONPATH": str(lowest_ansible())} if ansible == "lowest" else {}


def supported(ansible: str) -> bool:
    """Whether this Python runs it."""
    return ansible != "lowest" or sys.version_info[:2] <= NEWEST_PYTHON

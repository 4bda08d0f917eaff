"""The Python packages of Glance, which the embedded environment of the release lacks: a directory beside it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from gpustack_demo.embedded.environment import Environment, Report, locked
from gpustack_demo.embedded.process import tail
from gpustack_demo.embedded.releases import cache_dir

from ..errors import LabError

PINS = Path(__file__).with_name("glance.txt")
_MARKER = "gpustack-complete"


def glance(environment: Environment, report: Report) -> Path:
    """The directory, installed when the cache has none; for PYTHONPATH of the environment's Python."""
    content = str(environment.path).encode() + PINS.read_bytes()
    path = cache_dir() / f"glance-{environment.release.name}-{hashlib.sha256(content).hexdigest()[:12]}"
    with locked(path.with_name(f"{path.name}.lock")):
        if not (path / _MARKER).exists():
            report(f"installing Glance into {path}")
            _install(environment, path)
            (path / _MARKER).touch()
    return path


def _install(environment: Environment, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    log = path.with_name(f"{path.name}.log")
    pip = [str(environment.program("python")), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # The pins are complete and have hashes; the environment has what builds the one package without a wheel.
    options = ["--quiet", "--progress-bar", "off", "--require-hashes", "--no-deps", "--no-build-isolation"]
    with log.open("wb") as output:
        process = subprocess.run(
            [*pip, "install", *options, "--target", str(path), "-r", str(PINS)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment.variables(),
            check=False,
        )
    if process.returncode:
        raise LabError(f"Glance can't be installed; {log} ends with:\n{tail(log)}")

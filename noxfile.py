"""The tests against real Nova of the releases that `make test` leaves out. ``nox --list`` names the sessions.

    nox -s "nova(release='2023.1')"
    nox -s "nova(release='yoga')" -- tests/nova/render

A session skips a release whose Python this machine has not got: gpustack itself needs 3.11, and starts each Nova with
an interpreter of its own (``demo/gpustack_demo/embedded/releases.toml``).
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import nox

RELEASE_FILE = Path("demo/gpustack_demo/embedded/releases.toml")
RELEASES = list(tomllib.loads(RELEASE_FILE.read_text(encoding="utf-8"))["releases"])
TESTS = tuple(f"tests/nova/{what}" for what in ("parsers", "render", "embedded", "flavor", "cleanup"))
OF_ALL_RELEASES = tuple(f"tests/nova/cleanup/test_{what}.py" for what in ("schemas", "servers", "heads_on_servers"))
"""What `make test` runs once for all releases that there are."""
ASK = "import sys; from gpustack_demo.embedded.releases import release; print(release(sys.argv[1]).interpreter() or '')"

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["nova"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
@nox.parametrize("release", RELEASES)
def nova(session: nox.Session, release: str) -> None:
    """Lint, render, flavors, clean-up and the embedded clouds, on one release of Nova. Arguments go to pytest."""
    locks = [option for group in ("build", "runtime", "test") for option in ("-r", f"tools/locks/{group}.txt")]
    session.install("--require-hashes", "--no-deps", *locks)
    session.install("--no-deps", "--no-build-isolation", "-e", ".", "-e", "demo")
    if not str(session.run("python", "-c", ASK, release, silent=True)).strip():
        wanted = tomllib.loads(RELEASE_FILE.read_text(encoding="utf-8"))
        pythons = " or ".join(wanted["releases"][release]["python"])
        session.skip(f"Nova {release} needs Python {pythons} with venv: not on the path, nor below ~/.pyenv/versions")
    arguments = session.posargs or [*TESTS, *(f"--ignore={path}" for path in OF_ALL_RELEASES), "--reruns", "1"]
    session.run("python", "-m", "pytest", *arguments, env={**os.environ, "GPUSTACK_NOVA_RELEASES": release})

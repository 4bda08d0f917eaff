"""Services that most clouds do not have: their packages are installed when a cloud first needs them.

They are a directory beside the environment of the release, for PYTHONPATH of its Python, with an empty database that
has the schema.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpustack.base.errors import GpustackError
from gpustack_demo.embedded.environment import Environment, Report, ensure, locked
from gpustack_demo.embedded.process import ServiceError, tail
from gpustack_demo.embedded.releases import cache_dir

_MARKER = "gpustack-complete"


@dataclass(frozen=True, kw_only=True)
class Addition:
    """One service.

    :param schema: the arguments of Python that write the schema into ``database`` of a directory of packages.
    """

    title: str
    database: str
    schema: Callable[[Path], Sequence[str]]

    def pins(self, release: str) -> Path:
        """The file of exact versions and hashes of the service and its packages for a release."""
        return Path(__file__).with_name("constraints") / f"{self.title.lower()}-{release}.txt"

    def ensure(self, environment: Environment, *, report: Report = lambda text: None) -> Path:
        """The directory of the packages and the template of the database, created if needed.

        :raises GpustackError: when pip or the service failed.
        """
        name = environment.release.name
        content = str(environment.path).encode() + self.pins(name).read_bytes()
        path = cache_dir() / f"{self.title.lower()}-{name}-{hashlib.sha256(content).hexdigest()[:12]}"
        with locked(path.with_name(f"{path.name}.lock")):
            if not (path / _MARKER).exists():
                began = time.monotonic()
                report(f"OpenStack {name}: installing {self.title} into {path}")
                self._install(environment, path)
                (path / _MARKER).touch()
                report(f"OpenStack {name}: {self.title} installed in {time.monotonic() - began:.0f} s")
        return path

    def copy_database(self, packages: Path, to: Path) -> None:
        """Copy the template of the database."""
        shutil.copyfile(packages / self.database, to)

    def _install(self, environment: Environment, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        log = path.with_name(f"{path.name}.log")
        log.unlink(missing_ok=True)
        python = str(environment.program("python"))
        # The pins are complete and have hashes; the environment has what builds a package without a wheel.
        options = ["--quiet", "--progress-bar", "off", "--require-hashes", "--no-deps", "--no-build-isolation"]
        pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", *options]
        self._run([*pip, "--target", str(path), "-r", str(self.pins(environment.release.name))], log, environment)
        self._run([python, *self.schema(path)], log, environment, path)

    def _run(self, command: Sequence[str], log: Path, environment: Environment, packages: Path | None = None) -> None:
        variables = environment.variables() | ({"PYTHONPATH": str(packages)} if packages else {})
        with log.open("ab") as output:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                cwd=log.parent,
                check=False,
            )
        if process.returncode:
            raise ServiceError(
                f"{self.title} can't be installed:\n{tail(log)}",
                where=str(log),
                remedy="check that this machine reaches a Python package index, then run the same command again",
            )

    def main(self, releases: Sequence[str]) -> int:
        """Install the service before its first use; the exit code of the program."""
        for name in releases:
            try:
                self.ensure(ensure(name), report=lambda text: print(text, file=sys.stderr, flush=True))
            except GpustackError as error:
                print(f"error: {error}", file=sys.stderr)
                return error.exit_code
        return 0

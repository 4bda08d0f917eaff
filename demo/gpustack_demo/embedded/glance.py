"""Glance on loopback, with its images in files. Its packages are installed when a cloud first needs them.

They are a directory beside the environment of the release, for PYTHONPATH of its Python: most clouds have no Glance.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpustack.errors import GpustackError
from gpustack.files import write_atomic
from gpustack_demo.embedded.environment import Environment, Report, ensure, locked
from gpustack_demo.embedded.identity import AUTH, inside_command
from gpustack_demo.embedded.process import ServiceProcess, tail
from gpustack_demo.embedded.releases import cache_dir

_MARKER = "gpustack-complete"
_DATABASE = "glance.sqlite"
_STORES = ("images", "staging", "tasks")
SETTINGS = """
[DEFAULT]
enabled_backends = store:file
[database]
connection = {database}
[glance_store]
default_backend = store
[os_glance_staging_store]
filesystem_store_datadir = {directory}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {directory}/tasks
[paste_deploy]
flavor = keystone
config_file = {paste}
[store]
filesystem_store_datadir = {directory}/images
"""


def pins(release: str) -> Path:
    """The file of exact versions and hashes of Glance and its packages for a release."""
    return Path(__file__).with_name("constraints") / f"glance-{release}.txt"


def ensure_glance(environment: Environment, *, report: Report = lambda text: None) -> Path:
    """The directory of Glance's packages and the template of its database, created if needed.

    :raises GpustackError: when pip or Glance failed.
    """
    name = environment.release.name
    content = str(environment.path).encode() + pins(name).read_bytes()
    path = cache_dir() / f"glance-{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    with locked(path.with_name(f"{path.name}.lock")):
        if not (path / _MARKER).exists():
            began = time.monotonic()
            report(f"OpenStack {name}: installing Glance into {path}")
            _install(environment, path)
            (path / _MARKER).touch()
            report(f"OpenStack {name}: Glance installed in {time.monotonic() - began:.0f} s")
    return path


def _install(environment: Environment, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    log = path.with_name(f"{path.name}.log")
    log.unlink(missing_ok=True)
    python = str(environment.program("python"))
    # The pins are complete and have hashes; the environment has what builds the one package without a wheel.
    options = ["--quiet", "--progress-bar", "off", "--require-hashes", "--no-deps", "--no-build-isolation"]
    pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", *options]
    _run([*pip, "--target", str(path), "-r", str(pins(environment.release.name))], log, environment)
    config = path / "gpustack-database.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{path}/{_DATABASE}\n", encoding="utf-8")
    manage = [python, "-m", "glance.cmd.manage", "--config-file", str(config), "db_sync"]
    _run(manage, log, environment, path)


def _run(command: Sequence[str], log: Path, environment: Environment, packages: Path | None = None) -> None:
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
        raise GpustackError(
            f"Glance can't be installed:\n{tail(log)}",
            where=str(log),
            remedy="check that this machine reaches a Python package index, then run the same command again",
        )


def start_glance(
    environment: Environment, directory: Path, *, port: int, identity: int, password: str, report: Report
) -> ServiceProcess:
    """Start Glance with an SQLite database.

    :param directory: for its database, images, configuration and log.
    :param identity: Keystone's port.
    """
    packages = ensure_glance(environment, report=report)
    for place in (directory, *(directory / name for name in _STORES)):
        place.mkdir(mode=0o700)
    shutil.copyfile(packages / _DATABASE, directory / _DATABASE)
    database = f"sqlite:///{directory}/{_DATABASE}\nsqlite_synchronous = false"
    paste = packages / "etc" / "glance" / "glance-api-paste.ini"
    text = SETTINGS.format(directory=directory, database=database, paste=paste)
    auth = AUTH.format(group="keystone_authtoken", port=identity, password=password)
    write_atomic(directory / "glance-api.conf", text + auth, mode=0o600)
    description = directory / "description.json"
    content = {
        "environment": {"OS_GLANCE_CONFIG_DIR": str(directory)},
        "arguments": [],
        "applications": [["glance.wsgi.api", "application", False]],
        "port": port,
    }
    write_atomic(description, json.dumps(content), mode=0o600)
    return ServiceProcess(
        "Glance",
        inside_command(environment, "wsgi", description),
        log=directory / "glance.log",
        environment={**environment.variables(), "PYTHONPATH": str(packages)},
        cwd=directory,
    )


def main(releases: Sequence[str]) -> int:
    """``python -m gpustack_demo.embedded.glance RELEASE …``: install Glance before its first use."""
    for name in releases:
        try:
            ensure_glance(ensure(name), report=lambda text: print(text, file=sys.stderr, flush=True))
        except GpustackError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

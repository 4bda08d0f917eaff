"""A user's day from the artifacts alone: in a fresh root of Debian, without checkout and without network.

``make day SUITE=trixie`` runs it, not CI: it needs root rights and mmdebstrap. The commands are read from the
documentation (support/day.py). With network, only the root is made, and Nova's packages are downloaded into a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import pytest

from gpustack import __version__
from support import day

TOP = Path(__file__).parents[2]
WORK = Path(os.environ.get("GPUSTACK_DAY", "/var/tmp/gpustack-day"))
SUITES = (os.environ.get("SUITE") or "bookworm trixie").split()
PACKAGES = "ca-certificates,openssh-client,python3,python3-venv"
PINS = TOP / "demo/gpustack_demo/embedded/constraints"
PREVIOUS = ("0.1.0", "b0766b576474dca4010d81b42ed679f084d9488a")
"""The previous release and its commit, which has no tag."""
STATE = {"changes", "examples", "log"}
OTHERS = (
    r"home/user/\.ansible(/(tmp|cp|galaxy_.*|collections(/ansible_collections)?))?",
    r"home/user/\.cache(/(pip|python-entrypoints)(/.*)?)?",
)
"""What Ansible, pip and stevedore keep in a home."""


def roots(function: str, *arguments: str | Path, **variables: str) -> list[str]:
    """The command of a function of tests/fresh/roots."""
    code = 'top=$1 work=$2; . "$top/tests/fresh/roots"; shift 2; "$@"'
    bound = ["setpriv", "--pdeathsig", "KILL", "env", *(f"{name}={value}" for name, value in variables.items())]
    shell = [*bound, *["bash", "-euo", "pipefail", "-c"], code, "roots"]
    return [*shell, *map(str, (TOP, WORK)), function, *map(str, arguments)]


def ran(*command: str | Path, **options: object) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, **options)  # type: ignore[call-overload]


class Session:
    """A shell of a user in a root, which keeps its directory and variables between commands."""

    LOOP = "set +e -o pipefail; cd; while read -r _; do . /srv/command </dev/null; code=$?; echo; echo @@$code; done"

    def __init__(self, root: Path, log: Path, *, network: bool = False) -> None:
        self.root, self.log = root, log
        log.unlink(missing_ok=True)
        command = roots("inside", root, "user", self.LOOP, **({} if network else {"network": "none"}))
        self.shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def play(self, chosen: Sequence[day.Step]) -> None:
        """Run the commands of steps.

        :raises AssertionError: when one has another exit code, or a step does not show what it should.
        """
        for step in chosen:
            output = ""
            for command, code in step.commands():
                began = time.monotonic()
                answer, found = self.run(command)
                output += answer
                self._record(f"$ {command}\n{answer}[{found}, {time.monotonic() - began:.1f} s]\n\n")
                print(f"{time.monotonic() - began:6.1f} s  $ {command}", flush=True)
                assert found == code, f"{place(step)}: $ {command}\nexit code {found}, expected {code}:\n{answer}"
            for pattern in step.shows:
                assert re.search(pattern, output), f"{place(step)}: nothing matches {pattern!r}:\n{output}"

    def run(self, command: str) -> tuple[str, int]:
        """The output and the exit code of a command."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        (self.root / "srv/command").write_text(f"{command}\n", encoding="utf-8")
        self.shell.stdin.write("\n")
        self.shell.stdin.flush()
        lines: list[str] = []
        for line in self.shell.stdout:
            if end := re.fullmatch(r"@@(\d+)\n", line):
                return "".join(lines).removesuffix("\n"), int(end[1])
            lines.append(line)
        raise AssertionError(f"the shell ended during: $ {command}\n{''.join(lines)}")

    def _record(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as stream:
            stream.write(text)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        with self.shell:  # closes its input, which ends it and all that it started
            pass


def place(step: day.Step) -> str:
    return step.why if isinstance(step, day.ByHand) else f"{step.page}, {step.heading}"


def files(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Mode, owner, size and time of each file and link below a root, and mode and owner of each directory."""
    found = {}
    for directory, names, others in os.walk(root):
        if Path(directory) == root:
            names[:] = [name for name in names if name not in ("dev", "proc", "sys")]
        for name in (*names, *others):
            path = Path(directory, name)
            status = path.lstat()
            content = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
            found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, *content)
    return found


def changed(before: dict[str, tuple[int, int, int, int]], root: Path) -> list[str]:
    """The paths that were added, removed or changed, but for what pip and Ansible keep."""
    after = files(root)
    differ = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} - {"srv/command"}
    return sorted(path for path in differ if not re.fullmatch("|".join(OTHERS), path))


@pytest.fixture(scope="module")
def reached() -> None:
    """The directory of the roots, with how they reach the package registries."""
    ran(*roots("reach"))


@pytest.fixture(scope="module")
def bundle(reached: None) -> Path:
    return TOP / f"dist/nova-gpustack-{__version__}-offline.tar"


@pytest.fixture(scope="module")
def released(reached: None) -> Path:
    """The source of the previous release, with its wheels in ``dist``."""
    version, commit = PREVIOUS
    source = WORK / version
    if not (source / "dist").exists():
        archive = subprocess.run(["git", "archive", commit], cwd=TOP, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(source, filter="data")
        for part in (source, source / "demo"):
            options = ("--quiet", "--offline", "--no-build-isolation", "--wheel", "--out-dir", source / "unfinished")
            ran(TOP / ".venv/bin/uv", "build", *options, "--python", sys.executable, part)
        (source / "unfinished").rename(source / "dist")
    return source


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest, reached: None) -> str:
    name = str(request.param)
    if not (WORK / f"{name}.tar").exists():
        ran(*roots("archive", name, PACKAGES))
    return name


@pytest.fixture
def root(suite: str, bundle: Path) -> Iterator[Path]:
    """A fresh root, with the bundle in the home of its user."""
    with fresh(f"root-{suite}", suite, bundle) as path:
        yield path


@pytest.fixture(scope="module")
def nova_packages(suite: str, bundle: Path) -> Path:
    """Nova's packages, downloaded as the documentation describes; they stay in the cache until the pins change."""
    pins = b"".join((PINS / f"{name}2025.2.txt").read_bytes() for name in ("", "glance-"))
    packages = WORK / f"nova-packages-{suite}-{hashlib.sha256(pins).hexdigest()[:12]}"
    if not packages.exists():
        with fresh(f"online-{suite}", suite, bundle) as path:
            with Session(path, WORK / f"online-{suite}.log", network=True) as session:
                session.play(day.ONLINE)
            shutil.move(path / "home/user/nova-packages", packages)
    return packages


@contextlib.contextmanager
def fresh(name: str, suite: str, bundle: Path) -> Iterator[Path]:
    path = WORK / name
    ran(*roots("unpacked", suite, path))
    ran(*roots("inside", path, "root", "useradd --create-home --shell /bin/bash user", network="none"))
    shutil.copy(bundle, path / "home/user")
    yield path
    ran("rm", "-rf", "--one-file-system", path)


def remains(before: dict[str, tuple[int, int, int, int]], root: Path) -> list[str]:
    """What a day leaves outside of the state directory."""
    return [
        path for path in changed(before, root) if not re.match(r"home/user/\.local(/state(/gpustack(/.*)?)?)?$", path)
    ]


def test_a_day_from_installation_to_uninstallation(root: Path, suite: str, nova_packages: Path) -> None:
    shutil.copytree(nova_packages, root / "home/user/nova-packages")
    before = files(root)
    with Session(root, WORK / f"day-{suite}.log") as session:
        assert session.run("tail -n +3 /proc/net/dev | cut -d : -f 1")[0].split() == ["lo"]
        session.play(day.DAY)
        assert remains(before, root) == []
        state = root / "home/user/.local/state/gpustack"
        assert {path.name for path in state.iterdir()} == STATE
        assert [path for path in (state, *state.rglob("*")) if path.stat().st_mode & 0o077] == []
        session.play(day.FORGET)
    assert changed(before, root) == ["home/user/.local", "home/user/.local/state"]


def test_an_upgrade_restores_hosts_of_the_previous_release(root: Path, suite: str, released: Path) -> None:
    shutil.copytree(released / "dist", root / "home/user/released")
    before = files(root)
    with Session(root, WORK / f"upgrade-{suite}.log") as session:
        session.play(day.before_upgrade(released))
        session.play(day.AFTER_UPGRADE)
        assert remains(before, root) == []
        session.play(day.FORGET)
    assert changed(before, root) == ["home/user/.local", "home/user/.local/state"]

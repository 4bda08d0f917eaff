"""No command works in a loop over the fleet within a loop over the fleet; ``commands.yaml`` has the commands."""

from __future__ import annotations

import contextlib
import io
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from gpustack.cli.app import main
from gpustack.cli.cloud import OpenStackCommand
from support import growing_fleets
from support.growing_fleets import DIMENSIONS, Sizes
from support.growth import Counts, confirmed, counted

TABLE = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text(encoding="utf-8"))
MEASURED: dict[str, dict[str, Any]] = TABLE["measured"]
TOP = Path(__file__).parents[3]
RUNS = [(name, dimension) for name, entry in MEASURED.items() for dimension in entry["dimensions"]]
SIZE = 10
WARM: set[str] = set()
"""Commands that ran in this process: the first run also imports modules and fills caches."""


@contextlib.contextmanager
def listening(target: object, event: str, function: Callable[..., object]) -> Iterator[None]:
    """Listen to an event of SQLAlchemy."""
    sa.event.listen(target, event, function)
    try:
        yield
    finally:
        sa.event.remove(target, event, function)


def run(monkeypatch: pytest.MonkeyPatch, directory: Path, entry: dict[str, Any], sizes: Sizes) -> tuple[Counts, int]:
    """Count the work and the requests of a command."""
    directory.mkdir()
    places = {**growing_fleets.written(directory, sizes), "nova_conf": directory / "nova.conf"}
    if "{nova_conf}" in entry["arguments"]:
        growing_fleets.databases(directory, sizes)
    cloud = growing_fleets.cloud(sizes)
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *_arguments, **_options: cloud)
    before, arguments = (
        [word.format(**places) for word in entry.get(key, "").split()] for key in ("before", "arguments")
    )
    codes = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        if before:
            main(before)
        cloud.requests.clear()
        statements: list[object] = []
        with listening(sa.Engine, "before_cursor_execute", lambda *event: statements.append(event[2])):
            counts = counted(lambda: codes.append(main(arguments)))
    counts.statements = len(statements)
    assert codes == [0], errors.getvalue()
    return counts, len(cloud.requests)


@pytest.mark.parametrize(("name", "dimension"), RUNS, ids=[f"{name}-{dimension}" for name, dimension in RUNS])
def test_work_grows_with_the_fleet(name: str, dimension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = MEASURED[name]

    def at(size: int) -> tuple[Counts, int]:
        return run(monkeypatch, tmp_path / str(size), entry, Sizes(**{dimension: size}))

    if name not in WARM:
        at(1)
        WARM.add(name)
    (few, few_requests), (many, many_requests) = at(SIZE), at(4 * SIZE)
    growth = confirmed(few, many, SIZE, lambda: at(16 * SIZE)[0])
    assert not growth, "\n".join(["", *map(str, growth)])
    assert few.lines
    assert many.started == 0
    for kind, before, after in (
        ("opens", few.opened, many.opened),
        ("requests", few_requests, many_requests),
        ("statements", few.statements, many.statements),
    ):
        grows = dimension in entry.get(kind, ())
        assert (before < after <= 4 * before) if grows else after <= before, (kind, before, after)


def test_every_command_and_playbook_is_measured_or_exempt() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commands = project["entry-points"]["gpustack.cli"].keys()
    playbooks = {path.name for path in (TOP / "playbooks").glob("*.yml")}
    measured = {name.split()[0] for name in MEASURED}
    assert commands | playbooks == measured | TABLE["exempt"].keys()
    assert not measured & TABLE["exempt"].keys()
    assert all(len(reason) > 10 for reason in TABLE["exempt"].values())
    assert {dimension for _, dimension in RUNS} == set(DIMENSIONS)


LOOP = """
def plan(hosts):
    names = [host.upper() for host in hosts]
    return sorted(names)


def check(hosts):
    found = []
    for host in hosts:
        for _ in range(30):
            host = host.strip()
        if sum(1 for other in hosts if other == host) > 1:
            found.append(host)
    return found


def again(hosts):
    for host in hosts:
        for _ in range(40):
            host = host.strip()
        if [other for other in hosts if other == host] == []:
            return host
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, Any]:
    """A module with loops over the fleet within loops over the fleet."""
    path = tmp_path / "planted.py"
    space: dict[str, Any] = {}
    exec(compile(LOOP, str(path), "exec"), space)  # noqa: S102
    return space


@pytest.mark.parametrize(("function", "line"), [("check", 12), ("again", 21)])
def test_a_loop_within_a_loop_is_found_with_its_line(
    planted: dict[str, Any], tmp_path: Path, function: str, line: int
) -> None:
    def at(size: int) -> Counts:
        hosts = [f"gpu{number}" for number in range(size)]
        return counted(lambda: (planted["plan"](hosts), planted[function](hosts)), str(tmp_path))

    found = confirmed(at(SIZE), at(4 * SIZE), SIZE, lambda: at(16 * SIZE))
    assert [(growth.code.co_filename, growth.line) for growth in found] == [(str(tmp_path / "planted.py"), line)]

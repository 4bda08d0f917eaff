"""The guide "Undo changes to a cloud", and a run that is killed while Keystone's default changes."""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from gpustack.changes import journal
from gpustack.cli.app import main
from gpustack.cloud.limits import LimitsCloud
from gpustack_demo.embedded.cloud import EmbeddedCloud

CLASS = "CUSTOM_GPU_QUOTA_K4200"
GUIDE, EXAMPLE = Path(__file__).parents[3] / "docs/howto/undo-changes.md", "20261124T061500123456Z"
OLD = {"default": {"k4200": 1}, "projects": {"admin": {"k4200": 4}, "research": {"k4200": 2}}}
NEW = {"default": {"k4200": 0}, "projects": {"admin": {"k4200": 5}, "research": {"k4200": 3}}}
BEFORE, AFTER = {"": 1, "admin": 4, "research": 2}, {"": 0, "admin": 5, "research": 3}
FLAVOR = ("flavor", "create", "hand", "--alias", "k4200", "--vcpus", "1", "--ram", "1GiB", "--disk", "1", "--yes")


@pytest.fixture(scope="module")
def cloud(release_name: str, report: Callable[[str], None]) -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud(release_name, report=report) as running:
        with running.connection() as connection:
            connection.identity.create_project(name="research")
        yield running


@pytest.fixture
def quota(
    cloud: EmbeddedCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release_name: str
) -> Callable[[dict[str, object]], list[str]]:
    """The command line that syncs the limits of the cloud with a section of the spec."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for key, value in cloud.variables().items():
        monkeypatch.setenv(key, value)

    def command(quotas: dict[str, object]) -> list[str]:
        spec = {
            "version": 1,
            "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}},
            "hosts": {"gpu1": ["k4200"]},
            "nova": {"release": release_name},
            "quotas": quotas,
        }
        path = tmp_path / "gpustack.yaml"
        path.write_text(yaml.safe_dump(spec), encoding="utf-8")
        return ["quota", "apply", str(path), "--yes"]

    return command


def limits(cloud: EmbeddedCloud) -> dict[str, int]:
    """The limits by the name of the project; that without a name is the default."""
    with cloud.connection() as connection:
        api = LimitsCloud(connection)
        names = {project.id: project.name for project in api.projects()}
        present = api.present()
    return {names.get(limit.project or "", ""): limit.limit for limit in (*present.defaults, *present.limits)}


def killed_after(writes: int, command: list[str]) -> str:
    """Run a command in a process that is killed after so many of its requests to change limits; the ID of its run."""

    def run() -> None:
        send, count = LimitsCloud._send, 0

        def counted(self: LimitsCloud, *arguments: object) -> None:
            nonlocal count
            send(self, *arguments)  # type: ignore[arg-type]
            count += 1
            if count == writes:
                os.kill(os.getpid(), signal.SIGKILL)

        LimitsCloud._send = counted  # type: ignore[assignment, method-assign]
        main(command)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    _, record = next(journal.records())
    assert isinstance(record, journal.RunRecord)
    return record.head.id


# The run deletes both limits, changes the default, creates both limits; tests/unit has every point.
@pytest.mark.parametrize(("writes", "expected"), [(2, BEFORE), (3, AFTER)])
def test_the_next_command_completes_or_restores_the_limits(
    cloud: EmbeddedCloud,
    quota: Callable[[dict[str, object]], list[str]],
    capsys: pytest.CaptureFixture[str],
    writes: int,
    expected: dict[str, int],
) -> None:
    assert main(quota(OLD)) == 0
    assert limits(cloud) == BEFORE
    change = killed_after(writes, quota(NEW))
    assert limits(cloud) != expected
    assert main([*FLAVOR[:-1], "--check"]) == 0
    assert "WARNING GPU424" in capsys.readouterr().err
    assert limits(cloud) != expected
    assert main([*FLAVOR]) == 0
    assert "is taken over" in capsys.readouterr().err
    assert limits(cloud) == expected
    # Nothing is left to do, and the undo of the killed run includes its completion.
    assert main(["flavor", "delete", "hand", "--yes"]) == 0
    assert "GPU424" not in capsys.readouterr().err
    assert main(["undo", change, "--yes"]) == 0, capsys.readouterr().err
    assert limits(cloud) == BEFORE


def test_an_undo_reverts_the_killed_run_at_once(
    cloud: EmbeddedCloud, quota: Callable[[dict[str, object]], list[str]]
) -> None:
    assert main(quota(OLD)) == 0
    killed_after(4, quota(NEW))
    assert main(["undo", "--yes"]) == 0
    assert limits(cloud) == BEFORE


def test_the_guide_lists_and_undoes_a_run(
    cloud: EmbeddedCloud,
    quota: Callable[[dict[str, object]], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(quota(OLD)) == 0
    assert main(quota(NEW)) == 0
    _, record = next(journal.records())
    assert isinstance(record, journal.RunRecord)
    commands = re.findall(r"^\$ gpustack (.+)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        words = [record.head.id if word == EXAMPLE else word for word in shlex.split(command)]
        asked = words[0] == "undo" and "--check" not in words
        assert main([*words, *["--yes"] * asked]) == 0, (command, capsys.readouterr())
    assert limits(cloud) == BEFORE

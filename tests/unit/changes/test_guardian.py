"""A run is undone unless somebody confirms it in time: by the process that outlives the terminal."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest

from gpustack.changes.guardian import Guardian, is_confirmed
from gpustack.changes.journal import RunHead
from gpustack.cli.app import main

PROGRAM = """import sys
sys.path.insert(0, {root!r})
from gpustack.changes.guardian import is_confirmed
print(sys.argv[4:], is_confirmed(sys.stdin.buffer, float(sys.argv[sys.argv.index("--unless-confirmed") + 1])))
"""


UNDO = ("undo", "20261124T1Z", "--unless-confirmed", "60")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([b"ended\n", b"confirmed\n"], True),
        ([b"ended\nconfirmed\n"], True),
        ([b"ended\n"], False),
        ([], False),
    ],
)
def test_only_a_confirmation_keeps_the_run(messages: list[bytes], expected: bool) -> None:
    reading, writing = os.pipe()
    for message in messages:
        os.write(writing, message)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert is_confirmed(stream, 60) is expected


def test_the_time_begins_with_the_end_of_the_run() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"ended\n")
    with os.fdopen(reading, "rb") as stream:
        assert not is_confirmed(stream, 0.05)
    os.close(writing)


def test_the_process_runs_no_code_of_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("gpustack", "argparse"):
        (tmp_path / f"{module}.py").write_text("print('owned')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    with Guardian("20261124T1Z", ["--version"]) as guardian:
        assert guardian.succeeds()
    assert guardian.log.read_text().startswith("gpustack ")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Python that prints what gpustack would do."""
    program, script = tmp_path / "python", tmp_path / "asked.py"
    script.write_text(PROGRAM.format(root=str(Path(__file__).parents[3])))
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(("answer", "confirmed"), [("y\n", True), ("YES\n", True), ("no\n", False), ("", False)])
def test_the_process_is_asked_to_undo(answer: str, confirmed: bool) -> None:
    reading, writing = os.pipe()
    os.write(writing, answer.encode())
    with os.fdopen(reading) as stream, Guardian("20261124T1Z", UNDO) as guardian:
        assert guardian.asks(stream, 60 if answer else 0) is confirmed
        assert os.getsid(guardian._process.pid) == guardian._process.pid, "it survives the terminal"
        assert guardian.succeeds()
    os.close(writing)
    assert guardian.log.read_text().strip() == f"{list(UNDO)} {confirmed}"
    assert guardian.log.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("stand_in")
def test_an_interrupt_is_no_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.changes.guardian.select.select", mock.Mock(side_effect=KeyboardInterrupt))
    with Path("/dev/null").open() as stream, Guardian("20261124T1Z", UNDO) as guardian:
        assert not guardian.asks(stream, 60)
    assert guardian.log.read_text().strip() == f"{list(UNDO)} False"


@pytest.mark.usefixtures("stand_in")
def test_the_process_does_not_wait_for_this_one() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream, Guardian("20261124T1Z", (*UNDO[:3], "0.05")) as guardian:
        assert not guardian.asks(stream, 0)
        assert guardian._process.wait(60) == 0
    os.close(writing)


@pytest.mark.parametrize(
    ("messages", "recorded", "undone"),
    [
        (b"ended\nconfirmed\n", "1Z", False),
        (b"ended\n", "1Z", True),
        (b"", "1Z", True),
        (b"", "", False),
        (b"", "2Z", False),  # the run ended without a journal, because the file is that of another one
    ],
)
def test_undo_waits_for_the_confirmation(
    messages: bytes, recorded: str, undone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    journal = tmp_path / "run.jsonl"
    if recorded:
        journal.write_text(RunHead(id=recorded, command="cloud apply").model_dump_json() + "\n")
        journal.chmod(0o600)
    reading, writing = os.pipe()
    os.write(writing, messages)
    os.close(writing)
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        # There is no cloud, so that an undo ends with an error.
        monkeypatch.setenv("OS_CLOUD", "none")
        assert (main(["undo", str(journal), "--run", "1Z", *UNDO[2:], "--yes"]) != 0) is undone

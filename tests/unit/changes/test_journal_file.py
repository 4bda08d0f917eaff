"""The files of journals: who may read them, what a crash leaves of them, and what is refused."""

from __future__ import annotations

import errno
import os
import stat
from datetime import datetime
from pathlib import Path

import pytest

from gpustack.base.errors import JournalError
from gpustack.changes.journal_file import RESTORE, JournalFile, read_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records/run.jsonl"


def test_each_line_is_on_the_disk_before_the_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = list[str](), os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else path.read_text())

    monkeypatch.setattr(os, "fsync", noted)
    file = JournalFile(path, {"gpustack_change": 1})
    file.write({"begin": "a"}, "a was not changed")
    assert [text.count("\n") for text in synced] == [0, 1, 2]
    assert synced[0] == "directory"
    file.close()
    head, begin = read_lines(path)
    assert (head["gpustack_change"], begin) == (1, {"begin": "a"})
    assert datetime.fromisoformat(head["at"]).tzinfo is not None
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_file_that_exists_is_not_overwritten(path: Path) -> None:
    JournalFile(path, {"gpustack_change": 1}).close()
    before = path.read_text()
    with pytest.raises(JournalError, match=r"the journal can't be made.*nothing was changed") as raised:
        JournalFile(path, {"gpustack_change": 1})
    assert "--journal" in str(raised.value.remedy)
    assert path.read_text() == before


def test_a_line_that_can_not_be_written_names_the_state(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = JournalFile(path, {"gpustack_change": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"No space left on device.*a was not changed"):
        file.write({"begin": "a"}, "a was not changed")
    file.close()


def test_a_file_without_a_first_line_is_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"No space left on device.*nothing was changed"):
        JournalFile(path, {"gpustack_change": 1})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", []),
        ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n{"b": 2}', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n{"b": ', [{"a": 1}]),  # cut short
        ('{"a"', []),
    ],
)
def test_a_last_line_that_a_crash_cut_short_is_ignored(tmp_path: Path, text: str, read: list[object]) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    assert read_lines(tmp_path / "run.jsonl") == read


@pytest.mark.parametrize(
    ("content", "message", "remedy"),
    [
        (b'{"a": 1}\n{"b": \n{"c": 3}\n', "line 2 is damaged", RESTORE),
        (b'{"a": 1}\n{"b": \n', "line 2 is damaged", RESTORE),  # complete, so no crash
        (b"[[\n{}\n", "not a journal of gpustack", "name a file or an ID of `gpustack history`"),
        (b"\xff\n", "not a journal: ", "name the file that apply printed"),
        (b'{"a": 1}\n' + b"[" * 200_000 + b"\n{}\n", "line 2 is damaged", RESTORE),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str, remedy: str) -> None:
    (tmp_path / "run.jsonl").write_bytes(content)
    with pytest.raises(JournalError, match=message) as raised:
        read_lines(tmp_path / "run.jsonl")
    assert (raised.value.where, raised.value.remedy) == (str(tmp_path / "run.jsonl"), remedy)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"can't be read.*No such file") as raised:
        read_lines(tmp_path / "run.jsonl")
    assert str(tmp_path / "run.jsonl") in str(raised.value)

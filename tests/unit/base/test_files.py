"""Errors of the file system have a remedy."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

import pytest

from gpustack.base.errors import PlanError
from gpustack.base.files import (
    file_errors,
    file_remedy,
    make_directory,
    open_private,
    read_text,
    refuse_unwritable,
    state_dir,
    user_name,
    write_atomic,
)


@pytest.mark.parametrize("given", ["", "relative", "./relative"])
def test_a_relative_state_directory_is_ignored(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records would be found in one working directory only."""
    monkeypatch.setenv("XDG_STATE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_dir() == tmp_path / ".local/state/gpustack"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with --user 1234."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert user_name() == str(os.getuid())


def test_a_missing_directory_is_created_by_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "new dir" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(path, "x", mode=0o644)
    assert caught.value.filename == str(path)
    command = file_remedy(caught.value).partition("run: ")[2]
    assert os.system(command) == 0  # noqa: S605
    write_atomic(path, "x", mode=0o644)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_an_open_file_is_written_to_and_not_replaced(tmp_path: Path, kind: str) -> None:
    """As /dev/stdout: as root, a new file would replace it for all programs. Other links may be of others."""
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        reading = os.open(tmp_path / "out", os.O_RDONLY | os.O_CREAT)
        writing = os.open(tmp_path / "out", os.O_WRONLY)
    os.write(writing, b"before ")
    write_atomic(Path(f"/dev/fd/{writing}"), "x", mode=0o600)
    link = tmp_path / "link"
    link.symlink_to(f"/proc/self/fd/{writing}")
    write_atomic(link, "secret", mode=0o600)
    assert (link.is_symlink(), link.read_text()) == (False, "secret")
    assert os.read(reading, 100) == b"before x"
    os.close(reading)
    os.close(writing)


def test_a_pipe_with_a_name_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(tmp_path / "pipe", ["x", b"y"], mode=0o600)
    assert (tmp_path / "pipe").is_fifo()
    assert os.read(reading, 100) == b"xy"
    os.close(reading)


def test_the_umask_opens_no_private_directory(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_directory(tmp_path / "a/b/c")
        make_directory(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_directory(tmp_path / "file/b")


def test_the_umask_closes_no_directory_that_others_read(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        make_directory(tmp_path / "a/b/c", 0o755)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o755}


def test_the_umask_applies_to_new_files_alone(tmp_path: Path) -> None:
    """A replaced file keeps its mode; one that another user reads gets all of its bits."""
    replaced = tmp_path / "replaced"
    replaced.touch()
    replaced.chmod(0o640)
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "new", "", mode=0o644)
        write_atomic(tmp_path / "exact", "", mode=0o644, exact=True)
        write_atomic(replaced, "", mode=0o640, owner=replaced.stat())
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "exact": 0o644, "replaced": 0o640}


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EEXIST, "name a file that does not exist yet"),
        (errno.EACCES, "run gpustack as a user who may access the file: ls -ld /d /d/f"),
        (errno.ENOSPC, "free space on the file system: df -h /d"),
        (errno.EISDIR, "name a file: this is a directory"),
        (errno.EIO, "check the path"),
    ],
)
def test_each_error_has_a_remedy(number: int, remedy: str) -> None:
    assert file_remedy(OSError(number, os.strerror(number), "/d/f")) == remedy


def test_errors_of_a_file_get_their_reason_and_place(tmp_path: Path) -> None:
    with (
        pytest.raises(PlanError) as caught,
        file_errors(PlanError, "can't be read", tmp_path, state="nothing was done"),
    ):
        read_text(tmp_path)
    assert (caught.value.what, caught.value.where) == ("can't be read: Is a directory; nothing was done", str(tmp_path))
    assert caught.value.remedy == "name a file: this is a directory"
    with pytest.raises(ValueError, match="other"), file_errors(PlanError, "can't be read", tmp_path):
        raise ValueError("other")


def test_a_private_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.touch(mode=0o644)
    os.close(open_private(path))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)  # also root
    with pytest.raises(PermissionError) as caught:
        open_private(path)
    assert caught.value.filename == str(path)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_private_file_behind_a_link_or_a_pipe_of_another_user_is_refused(tmp_path: Path) -> None:
    """Whoever may write the directory would choose the file that is appended to, or read the log."""
    link, pipe, mine = tmp_path / "link", tmp_path / "pipe", tmp_path / "mine"
    link.symlink_to("profile")
    mine.symlink_to("log")
    os.mkfifo(pipe, 0o666)
    for path in (link, pipe):
        os.lchown(path, 4711, 4711)
        with pytest.raises(PermissionError) as caught:
            open_private(path)
        assert caught.value.filename == str(path)
    os.close(open_private(mine))
    assert {path.name for path in tmp_path.iterdir()} == {"link", "pipe", "mine", "log"}


def test_a_file_of_another_user_in_a_sticky_directory_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory such as /tmp, each user can replace only own files."""
    (tmp_path / "theirs").touch()
    (tmp_path / "link").symlink_to("missing")
    refuse_unwritable(tmp_path / "theirs")
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    refuse_unwritable(tmp_path / "theirs")  # not sticky
    tmp_path.chmod(0o1777)
    for name in ("theirs", "link"):
        with pytest.raises(PermissionError):
            refuse_unwritable(tmp_path / name)
    refuse_unwritable(tmp_path / "new")

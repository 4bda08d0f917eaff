"""Errors of the file system have a remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gpustack.base.files import file_remedy, make_private_directory, write_atomic


def test_a_missing_directory_is_created_by_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "new dir" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(path, "x", mode=0o644)
    assert caught.value.filename == str(path)
    command = file_remedy(caught.value).partition("run: ")[2]
    assert os.system(command) == 0  # noqa: S605
    write_atomic(path, "x", mode=0o644)


def test_the_umask_opens_no_private_directory(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_directory(tmp_path / "a/b/c")
        make_private_directory(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_private_directory(tmp_path / "file/b")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "run gpustack as a user who may access the file: ls -ld /d /d/f"),
        (errno.ENOSPC, "free space on the file system: df -h /d"),
        (errno.EISDIR, "name a file: this is a directory"),
        (errno.EIO, "check the path"),
    ],
)
def test_each_error_has_a_remedy(number: int, remedy: str) -> None:
    assert file_remedy(OSError(number, os.strerror(number), "/d/f")) == remedy

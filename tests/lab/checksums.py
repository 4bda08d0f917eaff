"""The checksums of a directory in the cache: a missing, truncated or changed file is noticed before it is used."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "sha256sums"


def write(directory: Path) -> None:
    """Write the checksums of all its files into a file of their own."""
    (directory / NAME).write_text("\n".join(_sums(directory)))


def match(directory: Path) -> bool:
    """Whether all its files are as they were when the checksums were written."""
    sums = directory / NAME
    return sums.is_file() and sums.read_text().splitlines() == _sums(directory)


def _sums(directory: Path) -> list[str]:
    return [
        f"{_checksum(path)}  {path.relative_to(directory)}"
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path != directory / NAME
    ]


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

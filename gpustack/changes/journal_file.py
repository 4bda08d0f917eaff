"""Files of journals: JSON lines, each synced to disk before the change that it records."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from gpustack.base.errors import JournalError
from gpustack.base.files import file_remedy, read_text

_MAX_BYTES = 256 << 20
RESTORE = "restore the file from a backup, or revert the changes by hand: its first line has the former values"


class JournalFile:
    """A journal that is being written: a new file, readable by its owner only.

    :param head: the first line, without the time.
    :param plain: converts values that JSON does not have.
    :raises JournalError: if the file exists or cannot be created.
    """

    def __init__(self, path: Path, head: Mapping[str, Any], plain: Callable[[object], object] | None = None) -> None:
        self.path = path
        self._plain = plain
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise JournalError(
                f"the journal can't be made: {error.strerror}; nothing was changed",
                where=str(path),
                remedy=f"{file_remedy(error)}; or name another file with --journal",
            ) from error
        os.fsync(directory)
        os.close(directory)
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        self.write({**head, "at": datetime.now().astimezone().isoformat(timespec="seconds")}, "nothing was changed")

    def write(self, entry: Mapping[str, Any], state: str) -> None:
        """Write a line and sync it to disk.

        :param state: the state of the change, for the error if the line cannot be written.
        :raises JournalError: if the line cannot be written.
        """
        try:
            self._stream.write(json.dumps(entry, default=self._plain) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            error.filename = str(self.path)  # an error of a write names no file
            raise JournalError(
                f"the journal can't be written: {error.strerror}; {state}",
                where=str(self.path),
                remedy=file_remedy(error),
            ) from error

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a line that can't be written is reported by write
            self._stream.close()


def read_lines(path: Path, rich: Callable[[dict[str, Any]], object] | None = None) -> list[Any]:
    """Read the lines of a journal. A last line that a crash cut short is ignored.

    :param rich: converts objects, as the ``object_hook`` of :func:`json.loads`.
    :raises JournalError: if the file cannot be read, or a line is damaged.
    """
    try:
        lines = read_text(path, _MAX_BYTES).splitlines(keepends=True)
    except OSError as error:
        raise JournalError(f"can't be read: {error.strerror}", where=str(path), remedy=file_remedy(error)) from error
    except UnicodeDecodeError as error:
        raise JournalError(
            f"not a journal: {error}", where=str(path), remedy="name the file that apply printed"
        ) from error
    entries: list[Any] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(json.loads(line, object_hook=rich))
        except (ValueError, TypeError, RecursionError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            if number == 1:
                remedy = "name a file or an ID of `gpustack history`"
                raise JournalError("not a journal of gpustack", where=str(path), remedy=remedy) from error
            raise JournalError(f"line {number} is damaged", where=str(path), remedy=RESTORE) from error
    return entries

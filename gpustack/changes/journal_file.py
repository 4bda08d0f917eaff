"""Files of journals: JSON lines, each synced to disk before the change that it records."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from gpustack.base.errors import JournalError
from gpustack.base.files import file_error, make_private_directory, read_text

_MAX_BYTES = 256 << 20
RESTORE = "restore the file from a backup, or revert the changes by hand: its lines have the former values"


class JournalFile:
    """A journal that is being written: a new file, readable by its owner only.

    :param head: the first line, without the time.
    :raises JournalError: if the file exists or cannot be created.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.path = path
        try:
            make_private_directory(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(directory)
        except OSError as error:
            what, state, remedy = "the journal can't be made", "nothing was changed", "name another file with --journal"
            raise file_error(JournalError, what, path, error, state=state, remedy=remedy) from error
        os.close(directory)
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        try:
            self.write({**head, "at": datetime.now().astimezone().isoformat(timespec="seconds")}, "nothing was changed")
        except JournalError:
            self.close()
            path.unlink(missing_ok=True)  # it would count as a record that cannot be read
            raise

    def write(self, entry: Mapping[str, Any], state: str) -> None:
        """Write a line and sync it to disk.

        :param state: the state of the change, for the error if the line cannot be written.
        :raises JournalError: if the line cannot be written.
        """
        try:
            self._stream.write(json.dumps(entry) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise file_error(JournalError, "the journal can't be written", self.path, error, state=state) from error

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a line that can't be written is reported by write
            self._stream.close()


def read_lines(path: Path) -> list[Any]:
    """Read the lines of a journal. A last line that a crash cut short is ignored.

    :raises JournalError: if the file cannot be read, or a line is damaged.
    """
    try:
        lines = read_text(path, _MAX_BYTES).splitlines(keepends=True)
    except OSError as error:
        raise file_error(JournalError, "can't be read", path, error) from error
    except UnicodeDecodeError as error:
        remedy = "name the file that apply printed"
        raise JournalError(f"not a journal: {error}", where=str(path), remedy=remedy) from error
    entries: list[Any] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            if number == 1:
                remedy = "name a file or an ID of `gpustack history`"
                raise JournalError("not a journal of gpustack", where=str(path), remedy=remedy) from error
            raise JournalError(f"line {number} is damaged", where=str(path), remedy=RESTORE) from error
    return entries

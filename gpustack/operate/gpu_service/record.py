"""The record of changes: one JSON line for each, written before the change, with the state before and after."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.errors import JournalError
from gpustack.base.files import file_remedy, state_dir
from gpustack.base.operations import Operation


def default_path() -> Path:
    """The file of this user."""
    return state_dir() / "gpus.jsonl"


def append(path: Path, operation: Operation, place: str) -> None:
    """Append an operation, and sync it to disk.

    :raises JournalError: if the file cannot be written; then nothing may be changed.
    """
    line = {"at": f"{datetime.now(UTC):%FT%TZ}", "gpu": place, **operation.to_dict()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as stream:
            stream.write(f"{json.dumps(line)}\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise JournalError(
            f"the record of changes can't be written: {error.strerror}; nothing was changed",
            where=str(path),
            remedy=file_remedy(error),
        ) from error

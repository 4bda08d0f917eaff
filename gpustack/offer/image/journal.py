"""The journal of changed images: the former values of the properties, before each change, and the outcome."""

from dataclasses import dataclass
from pathlib import Path

from gpustack.base.errors import JournalError
from gpustack.changes.journal_file import JournalFile, read_lines
from gpustack.offer.image.change import WRITTEN, SetProperties

_FORMAT = "gpustack_image_journal"
_VERSION = 1
FAILED = "failed"
"""The outcome after which the image has its former values."""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One image of a journal; the outcome is empty if the process ended before."""

    operation: SetProperties
    outcome: str = ""


class ImageJournal:
    """A journal that is being written.

    :raises JournalError: if the file exists or cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = JournalFile(path, {_FORMAT: _VERSION})
        self._count = 0

    def begin(self, operation: SetProperties) -> int:
        """Record a change before it is made; return its number.

        :raises JournalError: if the line cannot be written.
        """
        self._count += 1
        entry = {"begin": self._count, **operation.to_dict()}
        self._file.write(entry, f"{operation.name} was not changed")
        return self._count

    def end(self, number: int, outcome: str, detail: str = "") -> None:
        """Record the outcome.

        :raises JournalError: if the line cannot be written.
        """
        self._file.write({"end": number, "outcome": outcome, "detail": detail}, "no further image was changed")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> tuple[Changed, ...]:
    """Read the changes of a journal, in their order.

    :raises JournalError: if the file cannot be read, or is not a journal of this version.
    """
    lines = read_lines(path)
    try:
        if not lines or lines[0].get(_FORMAT) != _VERSION:
            raise JournalError("this is no journal of gpustack image, or of another version", where=str(path))
        ends = {line["end"]: str(line["outcome"]) for line in lines if "end" in line}
        changed = tuple(
            Changed(
                operation=SetProperties(
                    why=str(line["why"]),
                    image=str(line["image"]),
                    name=str(line["name"]),
                    after=_values(line["after"]),
                    before=_values(line["before"]),
                    owner=str(line.get("owner") or ""),
                    visibility=str(line.get("visibility") or ""),
                ),
                outcome=ends.get(line["begin"], ""),
            )
            for line in lines
            if "begin" in line
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise JournalError("a line does not belong to a journal", where=str(path)) from error
    for entry in changed:
        _check(entry.operation, path)
    return changed


def _check(operation: SetProperties, path: Path) -> None:
    """Refuse what gpustack never writes: others may have edited the journal.

    :raises JournalError: if a property is not in :data:`gpustack.offer.image.change.WRITTEN`.
    """
    other = sorted({*operation.after, *operation.before} - WRITTEN)
    if other or operation.after.keys() != operation.before.keys():
        names = ", ".join(other) or "values before and after of different properties"
        raise JournalError(
            f"image {operation.image}: gpustack does not write {names}; nothing was changed",
            where=str(path),
            remedy="somebody has edited the journal: restore it, or change the image by hand",
        )


def _values(entry: dict[str, object]) -> dict[str, str | None]:
    return {str(key): None if value is None else str(value) for key, value in entry.items()}

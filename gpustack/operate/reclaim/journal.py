"""The journal of reclaimed instances: what was idle and why, before it was shelved, and the outcome.

The instance itself is in Nova, so the journal names it only. If there is no ``end`` line, Nova shows the outcome.
"""

from dataclasses import dataclass
from pathlib import Path

from gpustack.base.errors import JournalError
from gpustack.changes.journal_file import JournalFile, read_lines
from gpustack.operate.reclaim.model import Decision

_FORMAT = "gpustack_reclaim_journal"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Shelved:
    """One instance of a journal.

    :ivar outcome: the result; empty if the process ended before.
    :ivar request: the id of the request that shelved it; empty if unknown.
    """

    number: int
    server: str
    name: str
    status: str
    outcome: str = ""
    request: str = ""


class ReclaimJournal:
    """A journal that is being written.

    :raises JournalError: if the file exists or cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = JournalFile(path, {_FORMAT: _VERSION})
        self._count = 0

    def begin(self, decision: Decision) -> int:
        """Record an instance before it is shelved; return its number.

        :raises JournalError: if the line cannot be written.
        """
        self._count += 1
        server = decision.server
        entry = {
            "begin": self._count,
            "server": server.id,
            "name": server.name,
            "project": server.project,
            "host": server.host,
            "status": server.status,
            "reason": decision.reason,
            "metadata": dict(server.metadata),
        }
        self._file.write(entry, f"{server.id} was not shelved")
        return self._count

    def end(self, number: int, outcome: str, detail: str = "", request: str = "") -> None:
        """Record the outcome.

        :param request: the id of the request that shelved the instance.
        :raises JournalError: if the line cannot be written.
        """
        self._file.write(
            {"end": number, "outcome": outcome, "detail": detail, "request": request},
            "Nova shows the outcome; no further one was begun",
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> tuple[Shelved, ...]:
    """Read the instances of a journal in the order in which they were shelved.

    :raises JournalError: if the file cannot be read, or is not a journal of this version.
    """
    lines = read_lines(path)
    try:
        if not lines or lines[0].get(_FORMAT) != _VERSION:
            raise JournalError("this is no journal of gpustack reclaim, or of another version", where=str(path))
        ends = {line["end"]: line for line in lines if "end" in line}
        return tuple(
            Shelved(
                number=int(line["begin"]),
                server=str(line["server"]),
                name=str(line["name"]),
                status=str(line["status"]),
                outcome=str(ends.get(line["begin"], {}).get("outcome", "")),
                request=str(ends.get(line["begin"], {}).get("request", "")),
            )
            for line in lines
            if "begin" in line
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise JournalError("a line does not belong to a journal", where=str(path)) from error

"""``gpustack history``: the changes that gpustack made, from the journals of this user."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from gpustack.base.columns import Column
from gpustack.base.errors import JournalError
from gpustack.base.files import state_dir
from gpustack.changes import journal
from gpustack.changes.change import difference
from gpustack.changes.history import HistoryEntry, former_gpus, history
from gpustack.changes.journal import PlannedChange, RunRecord
from gpustack.cli.change import former
from gpustack.cli.common import Lister
from gpustack.cli.options import option
from gpustack.cli.output import Table, table


class HistoryCommand(Lister):
    """List the changes that gpustack made, newest first; with ID, the operations of one.

    Runs of `host apply` and `host undo` are listed only, since their records stay on the hosts, and so are changes of
    GPUs by 0.1.0.
    """

    epilog = """\
gpustack history --since 2026-11-01 --object gpu-a100;
gpustack history 20261124T061500123456Z -f json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("change", nargs="?", metavar="ID|FILE", help="show the operations of this change")
        option(parser, "--since TIME", "only changes since then: 2026-11-01T08:00", type=_time)
        option(parser, "--object NAME", "only changes of this object, by a part of its name")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """One row for each change, or for each operation of one."""
        if parsed_args.change:
            run = journal.find(parsed_args.change, former())
            parsed_args.no_cloud = not run.head.cloud.auth_url  # its undo needs the hosts or the databases
            return table(parsed_args, _operations(run), run.head.changes)
        since, name = parsed_args.since, parsed_args.object
        entries = [entry.summary for entry in history(self._readable()) if _matches(entry, since, name)]
        try:
            entries += [entry for entry in former_gpus(state_dir() / "gpus.jsonl") if _matches(entry, since, name)]
        except JournalError as error:
            self.report(str(error), error=True)
        return table(parsed_args, _RUNS, entries)

    def _readable(self) -> Iterator[RunRecord]:
        """The runs, newest first; unreadable ones are reported."""
        for path, record in journal.records():
            if isinstance(record, JournalError):
                self.report(f"{path}: {record.what}", error=True)
            else:
                yield record


_RUNS: tuple[Column[HistoryEntry], ...] = (
    Column("ID", lambda entry: entry.record.head.id, "ID"),
    Column("Time", lambda entry: entry.record.head.at, "Time"),
    Column("Who", lambda entry: f"{entry.record.head.user}@{entry.record.head.host}", "Who"),
    Column("Command", lambda entry: entry.record.head.command, "Command"),
    Column("Cloud", lambda entry: str(entry.record.head.cloud), "Cloud"),
    Column("Spec", lambda entry: entry.record.head.spec, "Spec", lambda entry: entry.record.head.spec or " "),
    Column("Done", lambda entry: f"{entry.done}/{entry.planned}", "Done"),
    Column("State", lambda entry: entry.state, "State"),
)


def _operations(record: RunRecord) -> tuple[Column[PlannedChange], ...]:
    """The columns of the operations of a run."""
    details = {key: end.detail for key, end in record.ends.items()}
    return (
        Column("Kind", lambda change: change.kind, "Kind"),
        Column("Object", lambda change: change.name, "Object"),
        Column("ID", lambda change: change.id),
        Column("Seen", lambda change: change.seen, "Change", lambda c: "; ".join(difference(c.seen, c.wanted)) or " "),
        Column("Wanted", lambda change: change.wanted),
        Column("Result", lambda change: str(record.results.get(change.key, "not begun")), "Result"),
        Column("Detail", lambda c: details.get(c.key, ""), "Detail", lambda c: details.get(c.key) or " "),
    )


def _matches(entry: HistoryEntry, since: datetime | None, name: str | None) -> bool:
    head = entry.record.head
    with suppress(OverflowError, ValueError):  # a run without a valid time is listed
        if since is not None and datetime.fromisoformat(head.at).astimezone() < since:
            return False
    return name is None or any(name in change.name or name == change.id for change in head.changes)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-11-01 or 2026-11-01T08:00") from None

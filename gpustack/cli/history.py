"""``gpustack history``: the changes that gpustack made, from the journals of this user."""

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpustack.base.errors import JournalError
from gpustack.base.files import state_dir
from gpustack.base.text import printable
from gpustack.changes import journal
from gpustack.changes.change import difference
from gpustack.changes.history import HistoryEntry, former_gpus, history
from gpustack.changes.journal import RunRecord
from gpustack.cli.change import former
from gpustack.cli.common import Lister, is_for_machines


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
        parser.add_argument("--since", type=_time, metavar="TIME", help="only changes since then: 2026-11-01T08:00")
        parser.add_argument("--object", metavar="NAME", help="only changes of this object, by a part of its name")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """One row for each change, or for each operation of one."""
        machine = is_for_machines(parsed_args)
        if parsed_args.change:
            return _operations(journal.find(parsed_args.change, former()), machine)
        readable = []
        for path, record in journal.records():
            if isinstance(record, JournalError):
                self.report(f"{path}: {record.what}")
            else:
                readable.append(record)
        listed = history(readable)
        try:
            listed += former_gpus(state_dir() / "gpus.jsonl")
        except JournalError as error:
            self.report(str(error))
        entries = [entry for entry in listed if _matches(entry, parsed_args.since, parsed_args.object)]
        return (
            ("ID", "Time", "Who", "Command", "Cloud", "Spec", "Done", "State"),
            [
                (
                    entry.record.head.id,
                    entry.record.head.at,
                    f"{entry.record.head.user}@{entry.record.head.host}",
                    entry.record.head.command,
                    str(entry.record.head.cloud),
                    entry.record.head.spec,
                    f"{entry.done}/{len(entry.record.head.changes)}",
                    entry.state,
                )
                for entry in entries
            ],
        )


def _operations(record: RunRecord, machine: bool) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    for change in record.head.changes:
        end = record.ends.get(change.key)
        result = str(record.results.get(change.key, "not begun"))
        detail = end.detail if end else ""
        if machine:
            rows.append((change.kind, change.name, change.id, change.seen, change.wanted, result, detail))
        else:
            lines = printable("; ".join(difference(change.seen, change.wanted)))
            rows.append((change.kind, printable(change.name), lines, result, printable(detail)))
    if machine:
        return ("Kind", "Object", "ID", "Seen", "Wanted", "Result", "Detail"), rows
    return ("Kind", "Object", "Change", "Result", "Detail"), rows


def _matches(entry: HistoryEntry, since: datetime | None, name: str | None) -> bool:
    head = entry.record.head
    if since is not None and datetime.fromisoformat(head.at) < since:
        return False
    return name is None or any(name in change.name or name == change.id for change in head.changes)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-11-01 or 2026-11-01T08:00") from None

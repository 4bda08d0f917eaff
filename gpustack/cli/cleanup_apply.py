"""``gpustack cleanup apply`` and ``undo``: stale rows of ``pci_devices`` repaired, and put back."""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from gpustack.cli.cleanup_hosts import add_hypervisors
from gpustack.cli.cleanup_options import (
    NOTHING_TO_DO,
    add_cloud,
    add_databases,
    add_selection,
    cloud_of,
    require_known_hosts,
    selection_of,
    sources_of,
)
from gpustack.cli.common import Command, add_format, positive, ssh_options
from gpustack.errors import CloudError, UsageError

MAX_COUNT_REACHED = 1


class Apply(Command):
    """Apply a plan: the one shown now, or a saved one. Asks before it writes.

    Every repair is judged afresh, written to a journal first, and done in one short transaction that changes nothing
    when anything is not as it was seen. Exit codes: 0 done, 1 stopped at --max-count, 3 something could not be written,
    4 nothing to do, 21 Placement could not be asked.
    """

    epilog = """\
gpustack cleanup apply --config-file /etc/nova/nova.conf; gpustack cleanup apply plan.json --yes --max-count 10;
gpustack cleanup apply --sql"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The plan, and how it is carried out."""
        parser = super().get_parser(prog_name)
        parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan saved by `cleanup plan --out`")
        add_databases(parser)
        add_selection(parser)
        add_cloud(parser)
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="ask the hosts, show what would be done, and change nothing; exit code 3: something may not be done",
        )
        add_format(parser, "what --dry-run prints")
        parser.add_argument("--max-count", type=positive, metavar="N", help="stop after so many repairs")
        parser.add_argument("--sql", action="store_true", help="print the statements instead of running them")
        parser.add_argument(
            "--journal", type=Path, metavar="FILE", help="where to write the journal (default: made up)"
        )
        parser.add_argument(
            "--wait", type=float, default=150, metavar="S", help="how long to wait for Nova's periodic (%(default)s)"
        )
        group = add_hypervisors(
            parser, "before a repair, every host whose device it may free is asked over SSH which are in use"
        )
        group.add_argument(
            "--no-hypervisor",
            action="store_true",
            help="ask no host: only the repairs that need no answer are made, and the others are undecided",
        )
        group.add_argument(
            "--gone",
            action="append",
            metavar="HOST",
            help="replace the answer of this host, which is fenced, scrapped or reinstalled: no guest can run on it; "
            "recorded in the journal; may be repeated",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show, ask, carry out, sum up."""
        from gpustack.cleanup import plan
        from gpustack.cleanup.apply import carry_out
        from gpustack.cleanup.classes import label
        from gpustack.cleanup.hypervisor import Hypervisors
        from gpustack.cleanup.journal import Journal
        from gpustack.cleanup.outcome import Result, key
        from gpustack.cleanup.permission import answers, settle, unstopped
        from gpustack.cleanup.show import explanation, load_plan, script
        from gpustack.cleanup.verdict import Status

        saved = load_plan(parsed_args.plan) if parsed_args.plan else None
        sources = sources_of(self, parsed_args)
        selection = selection_of(parsed_args, sources)
        cloud = cloud_of(parsed_args)
        cleanup_plan = plan.make(sources, selection, cloud)
        if cleanup_plan.unasked is not None:
            raise CloudError(
                f"{cleanup_plan.unasked.what}; nothing was changed",
                where=cleanup_plan.unasked.where,
                remedy="see why; or leave --os-cloud out: the rows are repaired without Placement, and class Q later",
            )
        require_known_hosts(cleanup_plan, sources, parsed_args.host)
        wanted = [v.to_dict() for v in cleanup_plan.repairs] if saved is None else selection.of_planned(saved, sources)
        limited = parsed_args.max_count is not None and len(wanted) > parsed_args.max_count
        wanted = wanted[: parsed_args.max_count] if limited else wanted
        for _cell, reason in cleanup_plan.unread:
            self.report(reason)
        if not wanted:
            self.report("there is nothing to repair")
            return 3 if cleanup_plan.unread else NOTHING_TO_DO
        hypervisors = Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh_options(parsed_args))
        if parsed_args.sql:
            current = {key(verdict.to_dict()): verdict for verdict in cleanup_plan.repairs}
            changed = [planned for planned in wanted if key(planned) not in current]
            for planned in changed:
                self.report(f"left out, not as planned any more: {explanation(planned)}")
            with hypervisors:
                settled = [
                    settle(verdict, answers(verdict, hypervisors.ask, selection.gone))
                    for planned in wanted
                    if (verdict := current.get(key(planned)))
                ]
            left_out = [verdict for verdict in settled if verdict.status is not Status.STALE or unstopped(verdict)]
            for verdict in left_out:
                self.report(f"left out: {unstopped(verdict) or 'not permitted'}: {explanation(verdict)}")
            print(script(sources, [repair for repair in settled if repair not in left_out]), file=self.app.stdout)
            return 3 if changed or left_out or cleanup_plan.unread else 0
        if parsed_args.dry_run:
            current = {key(verdict.to_dict()): verdict for verdict in cleanup_plan.repairs}
            with hypervisors:
                settled = [
                    settle(verdict, answers(verdict, hypervisors.ask, selection.gone))
                    for planned in wanted
                    if (verdict := current.get(key(planned)))
                ]
            for verdict in settled:
                self.report(explanation(verdict))
            if parsed_args.format != "text":
                self.show_data([verdict.to_dict() for verdict in settled], parsed_args.format)
            return 0 if all(verdict.status is Status.STALE for verdict in settled) else 3
        for planned in wanted:
            self.report(explanation(planned))
        if not parsed_args.yes and not self._agreed(len(wanted)):
            self.report("nothing was changed")
            return 0
        path = parsed_args.journal or default_journal()
        journal = Journal(path=path)
        self.report(f"journal: {path}")
        failed = False
        with closing(journal), hypervisors:
            for outcome in carry_out(
                sources, wanted, selection, journal, ask=hypervisors.ask, wait=parsed_args.wait, cloud=cloud
            ):
                verdict = outcome.verdict
                subject = f"class {label(verdict.klass)} on {verdict.host}"
                print(f"{outcome.result}: {subject}: {outcome.detail}", file=self.app.stdout, flush=True)
                failed |= outcome.result not in (Result.REPAIRED, Result.GONE)
        self.report(f"to go back: gpustack cleanup undo {path}")
        return 3 if failed or cleanup_plan.unread else MAX_COUNT_REACHED if limited else 0

    def _agreed(self, count: int) -> bool:
        if not self.app.stdin.isatty():
            raise UsageError(
                "apply asks before it writes, and there is no terminal to ask on",
                remedy="look at the plan, then say --yes",
            )
        self.app.stderr.write(f"Carry out {count} repairs? [y/N] ")
        self.app.stderr.flush()
        answer: str = self.app.stdin.readline()
        return answer.strip().lower() in ("y", "yes")


class Undo(Command):
    """Revert the changes recorded in a journal, except rows that were used since.

    Exit codes: 0 everything was put back, 3 something was used since and left alone, 4 there was nothing to put back.
    """

    epilog = "gpustack cleanup undo --config-file /etc/nova/nova.conf journal.jsonl"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The journal and the databases."""
        parser = super().get_parser(prog_name)
        parser.add_argument("journal", type=Path, metavar="JOURNAL", help="the journal that apply wrote")
        add_databases(parser)
        add_cloud(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Undo one repair after another, the last first."""
        from gpustack.cleanup import journal
        from gpustack.cleanup.undo import Undone, undo

        entries = tuple(journal.read(parsed_args.journal))
        results = []
        for undone in undo(entries, sources_of(self, parsed_args), cloud_of(parsed_args)):
            results.append(undone.result)
            print(f"{undone.result}: repair {undone.entry.number}: {undone.detail}", file=self.app.stdout)
        if Undone.USED in results:
            return 3
        return 0 if Undone.RESTORED in results else NOTHING_TO_DO


def default_journal() -> Path:
    """A new journal's path: below the state directory of the user (XDG Base Directory Specification)."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    return state / "gpustack" / f"cleanup-{stamp}.jsonl"

"""``gpustack cleanup apply`` and ``undo``: repair stale rows of ``pci_devices``, and revert repairs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from gpustack.base.errors import ApplyError, CloudError, GpustackError, PlanError
from gpustack.cli.cleanup_hosts import add_hypervisors
from gpustack.cli.cleanup_options import (
    add_cloud,
    add_databases,
    add_selection,
    cloud_of,
    require_known_hosts,
    selection_of,
    sources_of,
    tell_unread,
)
from gpustack.cli.common import Command, add_format, confirm, positive, ssh_options

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.novadb.sources import Sources
    from gpustack.repair.hypervisor import Hypervisors
    from gpustack.repair.outcome import Outcome, Result
    from gpustack.repair.plan import CleanupPlan, Selection
    from gpustack.repair.verdict import PlannedVerdict, Verdict


class CleanupApplyCommand(Command):
    """Apply a plan: the current one, or a saved one. Asks for confirmation before it writes.

    Before each repair, gpustack checks the row again and writes the repair to a journal. A repair is one short
    transaction, which is rolled back if a row differs from the plan. If a repair failed or was skipped, the exit code
    is 14.
    """

    epilog = """\
gpustack cleanup apply --config-file /etc/nova/nova.conf; gpustack cleanup apply plan.json --yes --max-count 10;
gpustack cleanup apply --sql"""

    _plan: CleanupPlan
    _failed: GpustackError | None = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan saved by `cleanup plan --out`")
        add_databases(parser)
        add_selection(parser)
        add_cloud(parser)
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="ask the hosts, show the repairs, and change nothing; exit with 13 if a repair is blocked",
        )
        add_format(parser, "the output of --dry-run")
        parser.add_argument("--max-count", type=positive, metavar="N", help="stop after N repairs")
        parser.add_argument("--sql", action="store_true", help="print the statements instead of running them")
        parser.add_argument(
            "--journal",
            type=Path,
            metavar="FILE",
            help="write the journal to FILE (default: a new file below ~/.local/state/gpustack)",
        )
        parser.add_argument(
            "--wait",
            type=float,
            default=150,
            metavar="S",
            help="wait S seconds for Nova's periodic task (default: %(default)s)",
        )
        _add_hosts(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, apply it, and print a summary."""
        from gpustack.repair.hypervisor import Hypervisors
        from gpustack.repair.show import load_plan

        saved = load_plan(parsed_args.plan) if parsed_args.plan else None
        sources = sources_of(self, parsed_args)
        selection = selection_of(parsed_args, sources)
        cloud = cloud_of(parsed_args)
        self._plan = _current_plan(sources, selection, cloud)
        require_known_hosts(self._plan, sources, parsed_args.host)
        repairs = [v.to_dict() for v in self._plan.repairs] if saved is None else selection.of_planned(saved, sources)
        wanted = repairs[: parsed_args.max_count]
        if not wanted:
            if parsed_args.dry_run and parsed_args.format != "text":
                self.show_data([], parsed_args.format)
            self.report(f"nothing to repair: {self._plan.checked}")
            return 0
        with Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh_options(parsed_args)) as hypervisors:
            if parsed_args.sql:
                self._print_script(sources, wanted, self._settled(wanted, hypervisors, selection))
            elif parsed_args.dry_run:
                self._print_settled(self._settled(wanted, hypervisors, selection), parsed_args.format)
            else:
                self._carry_out(parsed_args, sources, wanted, selection, hypervisors, cloud)
        if left := len(repairs) - len(wanted):
            self.report(f"{left} more repair{'s' if left > 1 else ''} planned: stopped at --max-count")
        return 0

    def _carry_out(
        self,
        parsed_args: argparse.Namespace,
        sources: Sources,
        wanted: Sequence[PlannedVerdict],
        selection: Selection,
        hypervisors: Hypervisors,
        cloud: Connection | None,
    ) -> None:
        from gpustack.changes.journal_file import default_path
        from gpustack.repair.apply import carry_out, ordered
        from gpustack.repair.journal import Journal
        from gpustack.repair.show import explanation

        for planned in wanted:
            self.report(explanation(planned))
        if not parsed_args.yes:
            confirm(self, f"Carry out {len(wanted)} repair{'s'[: len(wanted) > 1]}?")
        path = parsed_args.journal or default_path("cleanup")
        with closing(Journal(path=path)) as journal:
            self.report(f"journal: {path}")
            outcomes = carry_out(
                sources, wanted, selection, journal, ask=hypervisors.ask, wait=parsed_args.wait, cloud=cloud
            )
            begun: list[Result] = []
            try:
                self._failed = self._print_outcomes(outcomes, begun)
            except GpustackError:
                rest = ordered(wanted)[len(begun) :]
                for planned in rest:
                    self.report(f"not carried out: {explanation(planned)}")
                self.report(f"to see what was carried out: gpustack cleanup undo {quote(str(path))} --check")
                raise
        self.report(f"to roll back: gpustack cleanup undo {quote(str(path))}")

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Return the exit code of the most severe problem: a missing repair, or an unreadable cell."""
        if self._failed:
            if self._plan.unread:
                for _cell, reason in self._plan.unread:
                    self.report(reason)
            raise self._failed
        tell_unread(self, self._plan)
        return 0

    def _settled(
        self, wanted: Sequence[PlannedVerdict], hypervisors: Hypervisors, selection: Selection
    ) -> list[Verdict]:
        """The planned repairs that the current plan still contains, with the answers of their hosts."""
        from gpustack.repair.outcome import key
        from gpustack.repair.permission import answers, settle

        now = {key(verdict.to_dict()): verdict for verdict in self._plan.repairs}
        return [
            settle(verdict, answers(verdict, hypervisors.ask, selection.gone))
            for planned in wanted
            if (verdict := now.get(key(planned)))
        ]

    def _print_script(self, sources: Sources, wanted: Sequence[PlannedVerdict], settled: Sequence[Verdict]) -> None:
        from gpustack.repair.outcome import key
        from gpustack.repair.permission import unstopped
        from gpustack.repair.show import explanation, script
        from gpustack.repair.verdict import Status

        present = {key(verdict.to_dict()) for verdict in self._plan.repairs}
        changed = [planned for planned in wanted if key(planned) not in present]
        for planned in changed:
            self.report(f"omitted, changed since the plan was made: {explanation(planned)}")
        blocked = [verdict for verdict in settled if verdict.status is not Status.STALE or unstopped(verdict)]
        for verdict in blocked:
            self.report(f"omitted: {unstopped(verdict) or 'not permitted'}: {explanation(verdict)}")
        print(script(sources, [verdict for verdict in settled if verdict not in blocked]), file=self.app.stdout)
        if changed or blocked:
            count = len(changed) + len(blocked)
            self._failed = PlanError(
                f"the script omits {count} of {len(wanted)} repairs", remedy="see the reasons above"
            )

    def _print_settled(self, settled: Sequence[Verdict], format_: str) -> None:
        from gpustack.repair.show import explanation
        from gpustack.repair.verdict import Status

        for verdict in settled:
            self.report(explanation(verdict))
        if format_ != "text":
            self.show_data([verdict.to_dict() for verdict in settled], format_)
        if blocked := [verdict for verdict in settled if verdict.status is not Status.STALE]:
            self._failed = PlanError(
                f"{len(blocked)} of {len(settled)} repairs are blocked", remedy="see the reasons above"
            )

    def _print_outcomes(self, outcomes: Iterable[Outcome], results: list[Result]) -> ApplyError | None:
        """Print each outcome when it is known, and add its result to ``results``."""
        from gpustack.repair.classes import label
        from gpustack.repair.outcome import Result

        for outcome in outcomes:
            results.append(outcome.result)
            subject = f"class {label(outcome.verdict.klass)} on {outcome.verdict.host}"
            print(f"{outcome.result}: {subject}: {outcome.detail}", file=self.app.stdout, flush=True)
        failed = len([result for result in results if result not in (Result.REPAIRED, Result.GONE)])
        return (
            ApplyError(f"{failed} of {len(results)} repairs were not made", remedy="see the reasons above")
            if failed
            else None
        )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the options for the hosts that are asked before a repair."""
    group = add_hypervisors(
        parser,
        "before a repair, gpustack asks each host whose device it may free over SSH which devices are in use",
    )
    group.add_argument(
        "--no-hypervisor",
        action="store_true",
        help="don't ask hosts: make only the repairs that need no answer; the others are undecided",
    )
    group.add_argument(
        "--gone",
        action="append",
        metavar="HOST",
        help="don't ask this host, because it is fenced, scrapped or reinstalled and no guest can run on it; "
        "recorded in the journal; can be repeated",
    )


def _current_plan(sources: Sources, selection: Selection, cloud: Connection | None) -> CleanupPlan:
    """Make the plan.

    :raises CloudError: if Placement could not be read.
    """
    from gpustack.repair import plan

    current = plan.make(sources, selection, cloud)
    if current.unasked is not None:
        raise CloudError(
            f"{current.unasked.what}; nothing was changed",
            where=current.unasked.where,
            remedy="repair the connection to Placement, or omit --os-cloud: classes Q and S are then not checked",
        )
    return current


class CleanupUndoCommand(Command):
    """Revert the changes recorded in a journal, except rows that were used since.

    Prints one line for each repair. If a row was used since and therefore skipped, the exit code is 14. With --check,
    shows what would be restored.
    """

    epilog = "gpustack cleanup undo --config-file /etc/nova/nova.conf journal.jsonl --check"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("journal", type=Path, metavar="JOURNAL", help="the journal that apply wrote")
        parser.add_argument("--check", action="store_true", help="show what would be restored, and change nothing")
        add_databases(parser)
        add_cloud(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Revert the repairs in reverse order."""
        from gpustack.repair import journal
        from gpustack.repair.undo import Undone, undo

        entries = tuple(journal.read(parsed_args.journal))
        results = []
        undoing = undo(entries, sources_of(self, parsed_args), cloud_of(parsed_args), check=parsed_args.check)
        for undone in undoing:
            results.append(undone.result)
            print(f"{undone.result}: repair {undone.entry.number}: {undone.detail}", file=self.app.stdout)
        if used := results.count(Undone.USED) + results.count(Undone.FAILED):
            verb = "would not be" if parsed_args.check else "were not"
            raise ApplyError(f"{used} of {len(results)} repairs {verb} rolled back", remedy="see the reasons above")
        if not {Undone.RESTORED, Undone.POSSIBLE} & set(results):
            self.report(f"nothing to restore: {len(results)} repairs checked")
        return 0

"""``gpustack cleanup apply``: repair stale rows of ``pci_devices``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpustack.base.errors import ApplyError, CloudError, DatabaseError, GpustackError, PlanError
from gpustack.base.operations import counted
from gpustack.changes.change import ChangeOutcome, CloudChange
from gpustack.cli.change import ChangeCommand
from gpustack.cli.cleanup_hosts import add_hypervisors
from gpustack.cli.cleanup_options import (
    add_cloud,
    add_databases,
    add_selection,
    cloud_of,
    require_known_hosts,
    selection_of,
    tell_unread,
)
from gpustack.cli.common import ssh_options
from gpustack.cli.options import option, positive
from gpustack.cloud import Connection
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.apply import unfreed
from gpustack.repair.changes import failed_migrations, planned
from gpustack.repair.hypervisor import Hypervisors
from gpustack.repair.outcome import Repairing, key
from gpustack.repair.permission import answers, by_hand, settle, unstopped
from gpustack.repair.plan import CleanupPlan, Selection
from gpustack.repair.show import explanation, load_plan, script
from gpustack.repair.verdict import PlannedVerdict, Status, Verdict


class CleanupApplyCommand(ChangeCommand):
    """Apply a plan: the current one, or a saved one. Asks for confirmation before it writes.

    Before each repair, gpustack checks the row again and writes the repair to a journal. A repair is one short
    transaction, which is rolled back if a row differs from the plan. If a repair failed or was skipped, the exit code
    is 14. `gpustack undo` reverts repairs.
    """

    epilog = """\
gpustack cleanup apply --config-file /etc/nova/nova.conf; gpustack cleanup apply plan.json --yes --max-count 10;
gpustack cleanup apply --sql"""

    _plan: CleanupPlan
    _repairing: Repairing
    _wait: float
    _failed: GpustackError | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan saved by `cleanup plan --out`")
        add_databases(parser)
        add_selection(parser)
        add_cloud(parser)
        self.add_change_options(parser, "--dry-run", output="the output of --check, which asks the hosts too")
        option(parser, "--max-count N", "stop after N repairs", type=positive)
        option(parser, "--sql", "print the statements instead of running them")
        option(
            parser,
            "--wait S",
            "wait S seconds for Nova's periodic task (default: %(default)s)",
            type=float,
            default=150,
        )
        _add_hosts(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Show the plan, ask for confirmation, apply it, and print a summary."""
        saved = load_plan(parsed_args.plan) if parsed_args.plan else None
        sources = self.sources(parsed_args)
        selection = selection_of(parsed_args, sources)
        cloud = self.optional_connection(parsed_args)
        self._plan = _current_plan(sources, selection, cloud)
        require_known_hosts(self._plan, sources, selection)
        repairs = [v.to_dict() for v in self._plan.repairs] if saved is None else selection.of_planned(saved, sources)
        wanted = repairs[: parsed_args.max_count]
        if not wanted:
            if parsed_args.check and parsed_args.format != "text":
                self.show_data([], parsed_args.format)
            self.report(f"nothing to repair: {self._plan.checked}")
            return
        self.to_do = not parsed_args.sql
        with Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh_options(parsed_args)) as hypervisors:
            self._repairing = Repairing(sources=sources, selection=selection, ask=hypervisors.ask, cloud=cloud)
            if parsed_args.sql:
                self._print_script(sources, wanted, self._asked(wanted))
            elif parsed_args.check:
                self._print_settled(wanted, self._asked(wanted), parsed_args.format)
            else:
                self._repair(parsed_args, wanted)
        if left := len(repairs) - len(wanted):
            self.report(f"{counted(left, 'more repair')} planned: stopped at --max-count")

    def _repair(self, parsed_args: argparse.Namespace, wanted: Sequence[PlannedVerdict]) -> None:
        self._wait = parsed_args.wait
        for verdict in wanted:
            self.report(explanation(verdict), error=True)  # the plan, on which the question follows
        try:
            self.carry_out(planned(wanted), parsed_args)
        except (ApplyError, DatabaseError, CloudError) as error:
            self._failed = error

    def optional_connection(self, parsed_args: argparse.Namespace) -> Connection | None:
        self._connection = self._connection or cloud_of(parsed_args)
        self.settle_once(self._connection, parsed_args)
        return self._connection

    def client(self, kind: type[CloudChange], parsed_args: argparse.Namespace) -> Any:  # noqa: ANN401
        return self._repairing

    def refuse_incomplete(self, outcomes: Sequence[ChangeOutcome]) -> None:
        """Wait for Nova too, which frees the devices of failed migrations in its periodic task."""
        held = unfreed(failed_migrations(outcomes), self._repairing.sources, self._wait)
        for verdict in held:
            place = f"class {verdict['class']} on {verdict['host']}"
            self.report(f"{place}: Nova has not freed the devices yet", error=True)
        super().refuse_incomplete(outcomes)
        if held:
            remedy = "Nova frees them in its next periodic task: plan again in a minute"
            raise ApplyError(f"repairs waiting for nova-compute: {len(held)} of {len(outcomes)}", remedy=remedy)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Return the exit code of the most severe problem: a missing repair, or an unreadable cell."""
        tell_unread(self, self._plan, self._failed)

    def _asked(self, wanted: Sequence[PlannedVerdict]) -> list[Verdict]:
        """The planned repairs that the current plan still contains, with the answers of their hosts."""
        now = {key(verdict.to_dict()): verdict for verdict in self._plan.repairs}
        return [
            settle(verdict, answers(verdict, self._repairing.ask, self._repairing.selection.gone))
            for repair in wanted
            if (verdict := now.get(key(repair)))
        ]

    def _omitted(self, wanted: Sequence[PlannedVerdict], settled: Sequence[Verdict], *, script: bool) -> list[Verdict]:
        """Report the repairs that changed or are blocked; return the latter. A script needs --stopped, too."""
        present = {key(verdict.to_dict()) for verdict in self._plan.repairs}
        changed = [repair for repair in wanted if key(repair) not in present]
        for repair in changed:
            unnamed = repair["allocation"] is not None and self._repairing.cloud is None
            reason = ": Placement is not named: add --os-cloud" if unnamed else ", changed since the plan was made"
            self.report(f"omitted{reason}: {explanation(repair)}", error=True)
        blocked = [
            verdict for verdict in settled if verdict.status is not Status.STALE or (script and unstopped(verdict))
        ]
        for verdict in blocked:
            self.report(f"omitted: {unstopped(verdict) or 'not permitted'}: {explanation(verdict)}", error=True)
        if count := len(changed) + len(blocked):
            self._failed = PlanError(f"omitted repairs: {count} of {len(wanted)}", remedy="see the reasons above")
        return blocked

    def _print_script(self, sources: Sources, wanted: Sequence[PlannedVerdict], settled: Sequence[Verdict]) -> None:
        blocked = self._omitted(wanted, settled, script=True)
        print(script(sources, [verdict for verdict in settled if verdict not in blocked]), file=self.app.stdout)

    def _print_settled(self, wanted: Sequence[PlannedVerdict], settled: Sequence[Verdict], format_: str) -> None:
        blocked = self._omitted(wanted, settled, script=False)
        for verdict in settled:
            if verdict not in blocked:
                self.report("\n  → ".join(filter(None, (explanation(verdict), by_hand(verdict)))))
        if format_ != "text":
            self.show_data([verdict.to_dict() for verdict in settled], format_)


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the options for the hosts that are asked before a repair."""
    group = add_hypervisors(
        parser, "before a repair, gpustack asks each host whose device it may free over SSH which devices are in use"
    )
    option(
        group, "--no-hypervisor", "don't ask hosts: make only the repairs that need no answer; the others are undecided"
    )
    option(
        group,
        "--gone HOST…",
        "don't ask this host, because it is fenced, scrapped or reinstalled and no guest can run on it; "
        "recorded in the journal; can be repeated",
    )


def _current_plan(sources: Sources, selection: Selection, cloud: Connection | None) -> CleanupPlan:
    """Make the plan.

    :raises CloudError: if Placement could not be read.
    """
    current = plan.make(sources, selection, cloud)
    if current.unasked is not None:
        raise CloudError(
            f"{current.unasked.what}; nothing was changed",
            where=current.unasked.where,
            remedy="repair the connection to Placement, or omit --os-cloud: classes Q and S are then not checked",
        )
    return current

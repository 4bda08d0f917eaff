"""``gpustack cleanup``: find stale rows of ``pci_devices`` with their evidence, repair them, explain a GPU."""

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any

from gpustack.base.columns import Column
from gpustack.base.errors import ApplyError, CloudError, DatabaseError, GpustackError, PlanError
from gpustack.base.host_groups import host_groups
from gpustack.base.text import counted, printable
from gpustack.changes.change import ChangeOutcome, CloudChange
from gpustack.cli import cleanup_options as options
from gpustack.cli.change import ChangeCommand
from gpustack.cli.cleanup_hosts import add_ask_hosts, add_hypervisors, asked_plan
from gpustack.cli.common import Command, Lister, add_exit_code, add_format, ssh_options
from gpustack.cli.options import add_snapshot, interval, natural, option, pci_address, positive
from gpustack.cli.output import Table, table
from gpustack.cloud import Connection
from gpustack.cloud.session import disconnect
from gpustack.novadb.sources import Sources
from gpustack.repair import metrics, plan
from gpustack.repair.apply import unfreed
from gpustack.repair.changes import failed_migrations, planned
from gpustack.repair.classes import label
from gpustack.repair.explain import Subject, explain
from gpustack.repair.hypervisor import Hypervisors, Usage
from gpustack.repair.outcome import Repairing, key
from gpustack.repair.permission import answers, by_hand, settle, unstopped
from gpustack.repair.plan import CleanupPlan, Selection
from gpustack.repair.show import explanation, load_plan, script
from gpustack.repair.verdict import PlannedVerdict, Status, Verdict

QUIET = ("protected", "heals")
_TEXTS: Mapping[str, Callable[[PlannedVerdict], str] | None] = {
    "class": lambda verdict: label(verdict["class"]),
    "devices": lambda verdict: " ".join(device["address"] for device in verdict["devices"]),
    **dict.fromkeys(("status", "cell", "host", "instance", "repair")),
}
"""The columns for people, with their texts; None for the value itself."""
_COLUMNS = tuple(
    Column[PlannedVerdict](key, itemgetter(key), key.capitalize() if key in _TEXTS else "", _TEXTS.get(key))
    for key in PlannedVerdict.__annotations__
    if key in PlannedVerdict.__required_keys__
)


class CleanupPlanCommand(Lister):
    """Check `pci_devices` for stale rows; show the reason and the repair of each. Changes nothing.

    Reads one read-only snapshot of each cell. If a cell is unreadable, the others are checked, and the exit code is
    30. If Placement does not answer, classes Q and S are undecided, and the exit code is 21.
    """

    epilog = """\
gpustack cleanup plan --config-file /etc/nova/nova.conf; gpustack cleanup plan --host gpu01 -f json;
gpustack cleanup plan --out plan.json --metrics /var/lib/node_exporter/gpustack.prom"""

    _plan: CleanupPlan
    _answers: Mapping[str, Usage] | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        options.add_selection(parser)
        group = parser.add_argument_group("hardware", "the devices of the hosts, for class O")
        add_snapshot(group)
        text = "compare device_spec of this nova.conf of nova-compute, or of its directory, as well"
        option(group, "--compute-config FILE…", text)
        add_ask_hosts(parser)
        option(parser, "--all", "also list items that are protected or heal by themselves")
        add_exit_code(parser)
        option(parser, "--out FILE", "save the plan, for `gpustack cleanup apply FILE`")
        option(parser, "--metrics FILE", "write counts by class as a Prometheus textfile")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        cloud = options.cloud_of(parsed_args)
        sources = options.with_hardware(options.sources_of(self, parsed_args), parsed_args, self.report)
        selection = options.selection_of(parsed_args, sources)
        self._plan, self._answers = asked_plan(self, parsed_args, sources, selection, cloud)
        options.require_known_hosts(self._plan, sources, selection)
        if parsed_args.out:
            self._plan.save(parsed_args.out)
        if parsed_args.metrics:
            metrics.write(parsed_args.metrics, self._plan)
        listed = [
            verdict.to_dict() for verdict in self._plan.verdicts if parsed_args.all or verdict.status not in QUIET
        ]
        return table(parsed_args, _COLUMNS, listed)

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Any]) -> int:
        """Print one line instead of an empty table."""
        rows = list(data)
        if rows or parsed_args.formatter != "table" or self._plan.unread:
            return int(super().produce_output(parsed_args, column_names, rows))
        print(f"No stale rows: {self._plan.checked}", file=self.app.stdout)
        return 0

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Print the reason and the next step of each verdict."""
        for verdict in self._plan.verdicts:
            if parsed_args.all or verdict.status not in QUIET:
                self.report(explanation(verdict))
        for line in [*held_lines(self._plan.verdicts, complete=parsed_args.all), *self._asked(parsed_args)]:
            self.report(line)
        options.tell_unread(self, self._plan, self._plan.unasked)
        self.to_do = any(verdict.status not in QUIET for verdict in self._plan.verdicts)
        self.outcome = "" if self._plan.repairs else "nothing"  # `cleanup apply` would write nothing

    def _asked(self, parsed_args: argparse.Namespace) -> Iterator[str]:
        """The hosts that answered, and why others did not; without --ask-hosts, the hosts that apply will query."""
        if self._answers is None:
            if hosts := sorted({host for verdict in self._plan.repairs for host in verdict.asks}):
                yield f"apply asks over SSH, as root or with --sudo: {', '.join(hosts)}; --ask-hosts shows who answers"
            return
        silent = [(host, f"{host} can't be asked: {u.gap}") for host, u in sorted(self._answers.items()) if u.gap]
        yield f"complete answers: {len(self._answers) - len(silent)} of {counted(len(self._answers), 'host')}"
        yield from (group.text for group in host_groups(silent))


def held_lines(verdicts: Iterable[Verdict], *, complete: bool) -> Iterator[str]:
    """The number of devices that are held by work in progress, and the end of the grace time."""
    verdicts = list(verdicts)
    protected = [verdict for verdict in verdicts if verdict.status is Status.PROTECTED]
    working = {(v.host, row.address): row.changed_at for v in protected if v.again is None for row in v.rows}
    if working:
        oldest, since = min(working.items(), key=lambda item: (item[1] is None, item[1], item[0]))
        age = f"the oldest, {' '.join(oldest)}, since {since} UTC" if since else "since an unknown time"
        number = counted(len(working), "device")
        yield f"work in progress holds {number}; {age}. Work that does not end is reported as stuck"
    for waiting, because in {v.waiting: v.because for v in protected if v.waiting is not None}.items():
        hosts = " and ".join(waiting.hosts) or "unknown hosts"
        yield (
            f"instance {waiting.instance}: {waiting.task or 'a migration'} without progress for "
            f"{waiting.age.total_seconds():.0f} seconds, on {hosts}; still protected: {because}"
        )
    if young := [verdict.again for verdict in protected if verdict.again is not None]:
        yield f"{len(young)} changed within the grace time: plan again after {max(young):%F %T} UTC"
    hidden = len([verdict for verdict in verdicts if verdict.status in QUIET])
    if hidden and not complete:
        yield f"{hidden} more are protected or heal by themselves; --all shows them"


class CleanupWatchCommand(Command):
    """Check repeatedly; write the counts by class to a Prometheus textfile each time."""

    streams = True
    epilog = "gpustack cleanup watch --metrics /var/lib/node_exporter/gpustack.prom --interval 300"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        options.add_selection(parser)
        add_ask_hosts(parser)
        option(parser, "--metrics FILE", "write the textfile FILE", required=True)
        option(parser, "--interval S", "check every S seconds", type=interval, default=300.0)
        option(parser, "--count N", "end after N checks (default: never)", type=positive)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Plan, write the metrics, sleep. If a database is unreachable, report that and retry."""
        rounds = itertools.count() if parsed_args.count is None else range(parsed_args.count)
        for number in rounds:
            if number:
                time.sleep(parsed_args.interval)
            try:
                sources = options.sources_of(self, parsed_args)
                selection = options.selection_of(parsed_args, sources)
                disconnect()  # a Placement that was silent is asked again
                plan, _answers = asked_plan(self, parsed_args, sources, selection, options.cloud_of(parsed_args))
            except DatabaseError as error:
                metrics.write_failure(parsed_args.metrics)
                self.report(str(error), error=True)
                continue
            metrics.write(parsed_args.metrics, plan)


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
    _wait: int
    _failed: GpustackError | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan saved by `cleanup plan --out`")
        options.add_selection(parser)
        self.add_change_options(parser, "--dry-run", output="the output of --check, which asks the hosts too")
        option(parser, "--max-count N", "stop after N repairs", type=positive)
        option(parser, "--sql", "print the statements instead of running them")
        option(parser, "--wait S", "wait S seconds for Nova's periodic task", type=natural, default=150)
        _add_hosts(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Show the plan, ask for confirmation, apply it, and print a summary."""
        saved = load_plan(parsed_args.plan) if parsed_args.plan else None
        sources = self.sources(parsed_args)
        selection = options.selection_of(parsed_args, sources)
        cloud = self.optional_connection(parsed_args)
        self._plan = _current_plan(sources, selection, cloud)
        options.require_known_hosts(self._plan, sources, selection)
        repairs = [v.to_dict() for v in self._plan.repairs] if saved is None else selection.of_planned(saved, sources)
        if not (wanted := repairs[: parsed_args.max_count]):
            if parsed_args.check and parsed_args.format != "text":
                self.show_data([], parsed_args.format)
            self.report(f"nothing to repair: {self._plan.checked}")
            return
        self.to_do = not parsed_args.sql
        with Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh_options(parsed_args)) as hypervisors:
            self._repairing = Repairing(sources=sources, selection=selection, ask=hypervisors.ask, cloud=cloud)
            if parsed_args.sql:
                settled = self._asked(wanted)
                omitted = self._omitted(wanted, settled, script=True)
                print(script(sources, [verdict for verdict in settled if verdict not in omitted]), file=self.app.stdout)
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
        self._connection = self._connection or options.cloud_of(parsed_args)
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
        options.tell_unread(self, self._plan, self._failed)

    def _asked(self, wanted: Sequence[PlannedVerdict]) -> list[Verdict]:
        """The planned repairs that the current plan still contains, with the answers of their hosts."""
        now = {key(verdict.to_dict()): verdict for verdict in self._plan.repairs}
        return [
            settle(verdict, answers(verdict, self._repairing.ask, self._repairing.selection.gone))
            for repair in wanted
            if not self._is_foreign(repair) and (verdict := now.get(key(repair)))
        ]

    def _is_foreign(self, repair: PlannedVerdict) -> bool:
        """Whether the repair of a saved plan is of a cell that the named databases lack, as in another region."""
        uuid = repair.get("database")
        return bool(uuid) and uuid not in {cell.uuid for cell in self._repairing.sources.cells}

    def _omitted(self, wanted: Sequence[PlannedVerdict], settled: Sequence[Verdict], *, script: bool) -> list[Verdict]:
        """Report the repairs that changed or are blocked; return the latter. A script needs --stopped, too."""
        present = {key(verdict.to_dict()) for verdict in self._plan.repairs}
        changed = [repair for repair in wanted if self._is_foreign(repair) or key(repair) not in present]
        for repair in changed:
            unnamed = repair["allocation"] is not None and self._repairing.cloud is None
            reason = ": Placement is not named: add --os-cloud" if unnamed else ", changed since the plan was made"
            if self._is_foreign(repair):
                reason = f": cell {repair['cell']} of the plan is not among the named databases"
            self.report(f"omitted{reason}: {explanation(repair)}", error=True)
        blocked = [
            verdict for verdict in settled if verdict.status is not Status.STALE or (script and unstopped(verdict))
        ]
        for verdict in blocked:
            self.report(f"omitted: {unstopped(verdict) or 'not permitted'}: {explanation(verdict)}", error=True)
        if count := len(changed) + len(blocked):
            self._failed = PlanError(f"omitted repairs: {count} of {len(wanted)}", remedy="see the reasons above")
        return blocked

    def _print_settled(self, wanted: Sequence[PlannedVerdict], settled: Sequence[Verdict], format_: str) -> None:
        blocked = self._omitted(wanted, settled, script=False)
        for verdict in settled:
            if verdict not in blocked:
                self.report("\n  → ".join(filter(None, (explanation(verdict), by_hand(verdict)))))
        if format_ != "text":
            self.show_data([verdict.to_dict() for verdict in settled], format_)


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the options for the hosts that are asked before a repair."""
    text = "before a repair, gpustack asks each host whose device it may free over SSH which devices are in use"
    group = add_hypervisors(parser, text)
    text = "don't ask hosts: make only the repairs that need no answer; the others are undecided"
    option(group, "--no-hypervisor", text)
    option(
        group,
        "--gone HOST…",
        "don't ask this host, because it is fenced, scrapped or reinstalled and no guest can run on it; "
        "recorded in the journal",
    )


def _current_plan(sources: Sources, selection: Selection, cloud: Connection | None) -> CleanupPlan:
    """Make the plan.

    :raises CloudError: if Placement could not be read.
    """
    current = plan.make(sources, selection, cloud)
    if current.unasked is not None:
        remedy = "repair the connection to Placement, or omit --os-cloud: classes Q and S are then not checked"
        raise CloudError(f"{current.unasked.what}; nothing was changed", where=current.unasked.where, remedy=remedy)
    return current


class CleanupExplainCommand(Command):
    """Show all records of one GPU or instance: Nova's tables, Placement, the hypervisor. Changes nothing.

    Start here: the records are shown in any state, without a verdict.
    """

    epilog = """\
gpustack cleanup explain gpu01 0000:81:00.0 --os-cloud admin;
gpustack cleanup explain 5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d --sudo"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("subject", metavar="HOST|INSTANCE", help="host of the GPU, or uuid of the instance")
        about = "address of the GPU, such as 0000:81:00.0"
        parser.add_argument("address", nargs="?", type=pci_address, metavar="ADDRESS", help=about)
        options.add_databases(parser)
        options.add_judgement(parser)
        options.add_cloud(parser)
        add_format(parser)
        option(add_hypervisors(parser), "--no-hypervisor", "don't ask the host")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.address is None:
            remedy = "gpustack cleanup explain HOST ADDRESS, or gpustack cleanup explain INSTANCE"
            subject = Subject(instances={options.instance_uuid(parsed_args.subject, remedy)})
        else:
            subject = Subject(host=parsed_args.subject, address=parsed_args.address)
        sources = options.sources_of(self, parsed_args)
        selection = options.selection_of(parsed_args, sources)
        with Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh_options(parsed_args)) as hypervisors:
            sections = explain(sources, selection, subject, hypervisors.ask, options.cloud_of(parsed_args))
            if parsed_args.format != "text":
                self.show_data([asdict(section) for section in sections], parsed_args.format)
            else:
                for section in sections:
                    text = self.completed("\n  ".join((section.title, *section.lines)))
                    print(printable(text, keep="\n"), file=self.app.stdout)

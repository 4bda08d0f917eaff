"""``gpustack cleanup plan`` and ``watch``: find stale rows of ``pci_devices``, with their evidence."""

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from gpustack.base.columns import Column
from gpustack.base.errors import DatabaseError
from gpustack.base.host_groups import host_groups
from gpustack.base.operations import counted
from gpustack.cli.cleanup_hosts import add_ask_hosts, asked_plan
from gpustack.cli.cleanup_options import (
    add_cloud,
    add_databases,
    add_hardware,
    add_selection,
    cloud_of,
    require_known_hosts,
    seconds,
    selection_of,
    sources_of,
    tell_unread,
    with_hardware,
)
from gpustack.cli.common import Command, Lister, add_exit_code
from gpustack.cli.options import option, positive
from gpustack.cli.output import Table, table
from gpustack.cloud.session import disconnect
from gpustack.repair import metrics
from gpustack.repair.classes import label
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import CleanupPlan
from gpustack.repair.show import explanation
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
        add_databases(parser)
        add_selection(parser)
        add_cloud(parser)
        add_hardware(parser)
        add_ask_hosts(parser)
        option(parser, "--all", "also list items that are protected or heal by themselves")
        add_exit_code(parser)
        option(parser, "--out FILE", "save the plan, for `gpustack cleanup apply FILE`")
        option(parser, "--metrics FILE", "write counts by class as a Prometheus textfile")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        cloud = cloud_of(parsed_args)
        sources = with_hardware(sources_of(self, parsed_args), parsed_args, self.report)
        selection = selection_of(parsed_args, sources)
        self._plan, self._answers = asked_plan(self, parsed_args, sources, selection, cloud)
        require_known_hosts(self._plan, sources, selection)
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
        tell_unread(self, self._plan, self._plan.unasked)
        self.to_do = any(verdict.status not in QUIET for verdict in self._plan.verdicts)
        self.outcome = "" if self._plan.repairs else "nothing"  # `cleanup apply` would write nothing

    def _asked(self, parsed_args: argparse.Namespace) -> Iterator[str]:
        """The hosts that answered, and why others did not; without --ask-hosts, the hosts that apply will query."""
        if self._answers is None:
            hosts = sorted({host for verdict in self._plan.repairs for host in verdict.asks})
            if hosts:
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
    young = [verdict.again for verdict in protected if verdict.again is not None]
    if young:
        yield f"{len(young)} changed within the grace time: plan again after {max(young):%F %T} UTC"
    hidden = len([verdict for verdict in verdicts if verdict.status in QUIET])
    if hidden and not complete:
        yield f"{hidden} more are protected or heal by themselves; --all shows them"


class CleanupWatchCommand(Command):
    """Check repeatedly; write the counts by class to a Prometheus textfile each time."""

    streams = True
    epilog = "gpustack cleanup watch --metrics /var/lib/node_exporter/gpustack.prom --interval 300"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_databases(parser)
        add_selection(parser)
        add_cloud(parser)
        add_ask_hosts(parser)
        option(parser, "--metrics FILE", "write the textfile FILE", required=True)
        option(parser, "--interval S", "check every S seconds (default: %(default)g)", type=seconds, default=300.0)
        option(parser, "--count N", "end after N checks (default: never)", type=positive)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Plan, write the metrics, sleep. If a database is unreachable, report that and retry."""
        rounds = itertools.count() if parsed_args.count is None else range(parsed_args.count)
        for number in rounds:
            if number:
                time.sleep(parsed_args.interval)
            try:
                sources = sources_of(self, parsed_args)
                selection = selection_of(parsed_args, sources)
                disconnect()  # a Placement that was silent is asked again
                plan, _answers = asked_plan(self, parsed_args, sources, selection, cloud_of(parsed_args))
            except DatabaseError as error:
                metrics.write_failure(parsed_args.metrics)
                self.report(str(error), error=True)
                continue
            metrics.write(parsed_args.metrics, plan)

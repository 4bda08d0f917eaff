"""``gpustack cleanup …``: rows of ``pci_devices`` that are left behind, found, proved, repaired, and put back."""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.cli.common import Command, Lister
from gpustack.cli.text import printable
from gpustack.errors import UsageError

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.cleanup.plan import CleanupPlan, Selection, Sources

NOTHING_TO_DO = 4
MAX_COUNT_REACHED = 1
URL_VARIABLE = "GPUSTACK_DB_URL"

CLASSES = "ABCDEFGHIJKLMNOPQR"
_QUIET = ("protected", "heals")


def _add_databases(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("databases")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--config-file",
        action="append",
        type=Path,
        metavar="FILE",
        help="nova.conf of nova-api, or its directory: its API database leads to every cell; may be repeated "
        "(default: /etc/nova)",
    )
    which.add_argument(
        "--db-url",
        metavar="URL",
        help="one cell's database alone, as nova.conf has it under [database] connection; what needs the API database "
        f"is then undecided. A password does not belong into an argument list: set {URL_VARIABLE} in its stead",
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("selection")
    group.add_argument("--host", action="append", metavar="HOST", help="only rows of this host; may be repeated")
    group.add_argument("--instance", metavar="UUID", help="only rows that name this instance")
    group.add_argument(
        "--cell", action="append", metavar="CELL", help="only this cell, by name or uuid; may be repeated"
    )
    group.add_argument(
        "--class", dest="classes", action="append", choices=CLASSES, help="only this class; may be repeated"
    )
    group.add_argument(
        "--grace",
        type=int,
        default=300,
        metavar="S",
        help="call nothing stale that changed within so many seconds (%(default)s)",
    )
    group.add_argument(
        "--service-down-time",
        type=int,
        metavar="S",
        help="nova.conf's service_down_time, in seconds (default: as there, else 60)",
    )
    group.add_argument(
        "--stopped",
        action="append",
        metavar="HOST",
        help="nova-compute of this host was stopped for the repair; may be repeated",
    )


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--os-cloud", metavar="NAME", help="its Placement too, for class Q (a name of clouds.yaml)")


def _cloud(parsed_args: argparse.Namespace) -> Connection | None:
    if not parsed_args.os_cloud:
        return None
    from gpustack.cloudapi import connect

    return connect(parsed_args.os_cloud)


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hardware", "what the hosts themselves have, for class O")
    group.add_argument("--snapshot", type=Path, metavar="FILE", help="facts of hosts, from gpustack scan --save FILE")
    group.add_argument(
        "--compute-config",
        action="append",
        type=Path,
        metavar="FILE",
        help="nova.conf of these hosts' nova-compute, or its directory: its device_spec is compared as well; may be "
        "repeated",
    )


def _with_hardware(sources: Sources, parsed_args: argparse.Namespace) -> Sources:
    if parsed_args.snapshot is None:
        if parsed_args.compute_config:
            raise UsageError("--compute-config says what hosts offer, and --snapshot what they have: name both")
        return sources
    from dataclasses import replace

    from gpustack.cleanup.hardware import device_specs, hardware
    from gpustack.facts.store import load_snapshot

    specs = device_specs(parsed_args.compute_config) if parsed_args.compute_config else None
    return replace(sources, hardware=hardware(load_snapshot(parsed_args.snapshot), specs))


def _sources(command: Command | Lister, parsed_args: argparse.Namespace) -> Sources:
    from gpustack.cleanup.plan import Sources

    url = parsed_args.db_url or (None if parsed_args.config_file else os.environ.get(URL_VARIABLE))
    if url:
        sources = Sources.from_url(url)
        if parsed_args.db_url and sources.cells[0].database.url.password:
            command.say(f"the password in --db-url can be read in the list of processes; {URL_VARIABLE} hides it")
    else:
        files = parsed_args.config_file or [Path("/etc/nova")]
        if not parsed_args.config_file and not files[0].exists():
            raise UsageError(
                "neither a configuration nor a database is named, and there is no /etc/nova here",
                remedy=f"name nova-api's configuration with --config-file, or one cell with {URL_VARIABLE} or --db-url",
            )
        sources = Sources.from_nova_conf(files)
    return sources.named(getattr(parsed_args, "cell", None) or ())


def _selection(parsed_args: argparse.Namespace, sources: Sources) -> Selection:
    from gpustack.cleanup.plan import Selection

    down = parsed_args.service_down_time or sources.service_down_time or 60
    return Selection(
        hosts=frozenset(parsed_args.host) if parsed_args.host else None,
        instance=parsed_args.instance,
        classes=frozenset(parsed_args.classes or ()),
        grace=timedelta(seconds=parsed_args.grace),
        service_down_time=timedelta(seconds=down),
        stopped=frozenset(parsed_args.stopped or ()),
    )


def _known(made: CleanupPlan, sources: Sources, hosts: list[str] | None) -> None:
    """See that ``--host`` names hosts, where nothing was found of them.

    :raises UsageError: when it does not.
    """
    from gpustack.cleanup.plan import unknown_hosts

    silent = set(hosts or ()) - {verdict.host for verdict in made.verdicts}
    if silent and not made.unread and (missing := unknown_hosts(sources, silent)):
        raise UsageError(
            f"no cell has a compute node of host {min(missing)}", remedy="openstack compute service list names them"
        )


class Plan(Lister):
    """Judge the rows of pci_devices and show which are stale, why, and what would repair them. Changes nothing.

    Reads through one read-only snapshot of each cell. Exit codes: 0 something was found, 2 --host names no
    host, 3 a database could not be read, 4 there is nothing to do.
    """

    epilog = """\
gpustack cleanup plan --config-file /etc/nova/nova.conf; gpustack cleanup plan --host gpu01 -f json;
gpustack cleanup plan --out plan.json --metrics /var/lib/node_exporter/gpustack.prom"""

    _plan: CleanupPlan

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The databases, the selection and what becomes of the plan."""
        parser = super().get_parser(prog_name)
        _add_databases(parser)
        _add_selection(parser)
        _add_cloud(parser)
        _add_hardware(parser)
        parser.add_argument("--all", action="store_true", help="list what is protected or heals by itself as well")
        parser.add_argument("--out", type=Path, metavar="FILE", help="save the plan, for `gpustack cleanup apply FILE`")
        parser.add_argument(
            "--metrics", type=Path, metavar="FILE", help="write counts by class as a Prometheus textfile"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Make the plan and list its verdicts."""
        from gpustack.cleanup import metrics, plan

        cloud = _cloud(parsed_args)
        sources = _with_hardware(_sources(self, parsed_args), parsed_args)
        self._plan = plan.make(sources, _selection(parsed_args, sources), cloud)
        _known(self._plan, sources, parsed_args.host)
        if parsed_args.out:
            self._plan.save(parsed_args.out)
        if parsed_args.metrics:
            metrics.write(parsed_args.metrics, self._plan)
        shown = [
            verdict.to_dict() for verdict in self._plan.verdicts if parsed_args.all or verdict.status not in _QUIET
        ]
        if parsed_args.formatter in ("json", "yaml") and not parsed_args.columns:
            columns = tuple(shown[0]) if shown else ("class", "status", "host", "devices", "instance", "repair")
            return columns, [tuple(verdict[name] for name in columns) for verdict in shown]
        header = ("Class", "Status", "Cell", "Host", "Devices", "Instance", "Repair")
        return header, [
            (
                verdict["class"],
                verdict["status"],
                verdict["cell"],
                verdict["host"],
                " ".join(device["address"] for device in verdict["devices"]) or "-",
                verdict["instance"] or "-",
                verdict["repair"] or "-",
            )
            for verdict in shown
        ]

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Say why, and what is next."""
        from gpustack.cleanup.show import explanation

        for verdict in self._plan.verdicts:
            if parsed_args.all or verdict.status not in _QUIET:
                self.say(explanation(verdict))
        for _cell, reason in self._plan.unread:
            self.say(reason)
        hidden = sum(verdict.status in _QUIET for verdict in self._plan.verdicts)
        if hidden and not parsed_args.all:
            self.say(f"{hidden} more are protected or heal by themselves; --all shows them")
        if self._plan.unread:
            return 3
        return 0 if any(verdict.status not in _QUIET for verdict in self._plan.verdicts) else NOTHING_TO_DO


class Apply(Command):
    """Carry out a plan: the one that is shown now, or a saved one. Asks before it writes.

    Every repair is judged afresh, written to a journal first, and done in one short transaction that changes nothing
    when anything is not as it was seen. Exit codes: 0 done, 1 stopped at --max-count, 3 something could not be written,
    4 nothing to do.
    """

    epilog = """\
gpustack cleanup apply --config-file /etc/nova/nova.conf; gpustack cleanup apply plan.json --yes --max-count 10;
gpustack cleanup apply --sql"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The plan, and how it is carried out."""
        parser = super().get_parser(prog_name)
        parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan saved by `cleanup plan --out`")
        _add_databases(parser)
        _add_selection(parser)
        _add_cloud(parser)
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
        parser.add_argument("--max-count", type=int, metavar="N", help="stop after so many repairs")
        parser.add_argument("--sql", action="store_true", help="print the statements in place of running them")
        parser.add_argument(
            "--journal", type=Path, metavar="FILE", help="where to write the journal (default: made up)"
        )
        parser.add_argument(
            "--wait", type=float, default=150, metavar="S", help="how long to wait for Nova's periodic (%(default)s)"
        )
        group = parser.add_argument_group(
            "hypervisors", "before a row is freed, its host is asked over SSH which devices guests really have"
        )
        group.add_argument("--no-hypervisor", action="store_true", help="do not ask")
        group.add_argument("--user", metavar="NAME", help="user to log in as")
        group.add_argument("--identity", type=Path, metavar="FILE", help="private key to offer first")
        group.add_argument("--sudo", action="store_true", help="look as root, through sudo -n")
        group.add_argument("--ssh-config", type=Path, metavar="FILE", help="use this in place of ~/.ssh/config")
        group.add_argument("--known-hosts", type=Path, metavar="FILE", help="use this in place of ~/.ssh/known_hosts")
        group.add_argument("--timeout", type=float, default=15.0, metavar="S", help="seconds to wait (%(default)g)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show, ask, carry out, sum up."""
        from gpustack.cleanup import plan
        from gpustack.cleanup.apply import carry_out
        from gpustack.cleanup.hypervisor import Hypervisors
        from gpustack.cleanup.journal import Journal
        from gpustack.cleanup.outcome import Result
        from gpustack.cleanup.show import explanation, load_plan, script
        from gpustack.facts.ssh_config import SshOptions

        saved = load_plan(parsed_args.plan) if parsed_args.plan else None
        sources = _sources(self, parsed_args)
        selection = _selection(parsed_args, sources)
        cloud = _cloud(parsed_args)
        made = plan.make(sources, selection, cloud)
        _known(made, sources, parsed_args.host)
        wanted = [v.to_dict() for v in made.repairs] if saved is None else saved
        limited = parsed_args.max_count is not None and len(wanted) > parsed_args.max_count
        wanted = wanted[: parsed_args.max_count] if limited else wanted
        for _cell, reason in made.unread:
            self.say(reason)
        if not wanted:
            self.say("there is nothing to repair")
            return 3 if made.unread else NOTHING_TO_DO
        if parsed_args.sql:
            print(script(sources, made, wanted), file=self.app.stdout)
            return 0
        for planned in wanted:
            self.say(explanation(planned))
        if parsed_args.dry_run:
            return 0
        if not parsed_args.yes and not self._agreed(len(wanted)):
            self.say("nothing was changed")
            return 0
        path = parsed_args.journal or default_journal()
        journal = Journal(path=path)
        self.say(f"journal: {path}")
        failed = False
        ssh = SshOptions(
            user=parsed_args.user,
            identity=parsed_args.identity,
            config=parsed_args.ssh_config,
            known_hosts=parsed_args.known_hosts,
            timeout=parsed_args.timeout,
            sudo=parsed_args.sudo,
        )
        with closing(journal), Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh) as hypervisors:
            for outcome in carry_out(
                sources, wanted, selection, journal, ask=hypervisors.ask, wait=parsed_args.wait, cloud=cloud
            ):
                verdict = outcome.verdict
                what = f"class {verdict.klass} on {verdict.host}"
                print(f"{outcome.result}: {what}: {printable(outcome.detail)}", file=self.app.stdout, flush=True)
                failed |= outcome.result not in (Result.REPAIRED, Result.GONE)
        self.say(f"to go back: gpustack cleanup undo {path}")
        return 3 if failed or made.unread else MAX_COUNT_REACHED if limited else 0

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
    """Put back what a journal tells of, where nothing has used the rows since.

    Exit codes: 0 everything was put back, 3 something was used since and left alone, 4 there was nothing to put back.
    """

    epilog = "gpustack cleanup undo --config-file /etc/nova/nova.conf journal.jsonl"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The journal and the databases."""
        parser = super().get_parser(prog_name)
        parser.add_argument("journal", type=Path, metavar="JOURNAL", help="the journal that apply wrote")
        _add_databases(parser)
        _add_cloud(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Undo one repair after another, the last first."""
        from gpustack.cleanup import journal
        from gpustack.cleanup.undo import Undone, undo

        entries = tuple(journal.read(parsed_args.journal))
        results = []
        for undone in undo(entries, _sources(self, parsed_args).cells, _cloud(parsed_args)):
            results.append(undone.result)
            print(f"{undone.result}: repair {undone.entry.number}: {undone.detail}", file=self.app.stdout)
        if Undone.USED in results:
            return 3
        return 0 if Undone.RESTORED in results else NOTHING_TO_DO


class Watch(Command):
    """Judge again and again, and write the counts by class as a Prometheus textfile each time."""

    epilog = "gpustack cleanup watch --metrics /var/lib/node_exporter/gpustack.prom --interval 300"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The databases, the file and the interval."""
        parser = super().get_parser(prog_name)
        _add_databases(parser)
        _add_selection(parser)
        parser.add_argument("--metrics", type=Path, metavar="FILE", required=True, help="the textfile to write")
        parser.add_argument("--interval", type=float, default=300, metavar="S", help="seconds between (%(default)s)")
        parser.add_argument("--count", type=int, metavar="N", help="end after so many times")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Judge, write, sleep; an unreachable database is told of and tried again."""
        import itertools
        import time

        from gpustack.cleanup import metrics, plan
        from gpustack.errors import DatabaseError

        rounds = itertools.count() if parsed_args.count is None else range(parsed_args.count)
        for number in rounds:
            if number:
                time.sleep(parsed_args.interval)
            try:
                sources = _sources(self, parsed_args)
                made = plan.make(sources, _selection(parsed_args, sources))
            except DatabaseError as error:
                metrics.write_failure(parsed_args.metrics)
                self.say(str(error))
                continue
            metrics.write(parsed_args.metrics, made)
        return 0


def default_journal() -> Path:
    """A new journal's path: below the state directory of the user (XDG Base Directory Specification)."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    return state / "gpustack" / f"cleanup-{stamp}.jsonl"

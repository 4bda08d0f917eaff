"""The base of the commands that change a cloud: show, ask, check again, record. ``gpustack history`` and ``undo``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import ApplyError, GpustackError, JournalError, PlanError
from gpustack.base.files import data_table, digest
from gpustack.base.findings import Finding, errors
from gpustack.base.operations import Operation
from gpustack.base.text import counted, printable, quoted
from gpustack.changes import journal
from gpustack.changes.change import SUCCESSFUL, ChangeOutcome, ChangeResult, CloudChange, GuardedChange
from gpustack.changes.guardian import Guardian, is_confirmed
from gpustack.changes.journal import Cloud, RunHead, RunRecord, UnbegunError, last, new_id
from gpustack.changes.run import recorded_run, run
from gpustack.changes.undo import plan_undo, without_gone
from gpustack.cli.cleanup_options import add_cells, add_databases, cell_names, sources_of
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Command, add_format, confirm, see_terminal
from gpustack.cli.options import natural, option, positive
from gpustack.cloud import Connection, session
from gpustack.cloud.config_files import cloud_names
from gpustack.cloud.limits import LimitsCloud
from gpustack.offer.quota.changes import completion

if TYPE_CHECKING:
    from gpustack.novadb.sources import Sources

_UNDONE_BY = {"cleanup": "repair", "image": "image", "reclaim": "shelving"}
"""The kind of change by the command whose undo reverts the last change of this kind."""


def kinds() -> dict[str, type[CloudChange]]:
    """The classes of all changes, by their kind of object."""
    return _imported("kinds")


def former() -> dict[str, Any]:
    """The readers of journals of 0.1.0: see :data:`gpustack.changes.journal.Former`."""
    return _imported("former")


def _imported(part: str) -> dict[str, Any]:
    named = {key: place.split(":") for key, place in data_table("changes.toml")[part].items()}
    return {key: getattr(importlib.import_module(module), name) for key, (module, name) in named.items()}


def add_question(parser: argparse.ArgumentParser, check: str) -> None:
    """Add ``--check`` and ``--yes``, of a command that asks.

    :param check: the help of ``--check``.
    """
    option(parser, "--check", check)
    parser.add_argument("-y", "--yes", action="store_true", help="don't ask for confirmation")


class ChangeCommand(OpenStackCommand):
    """Base class of the commands that change a cloud.

    :cvar jobs: how many changes run at the same time.
    :cvar confirm_within: seconds after which a run is undone unless somebody confirms it; 0 for no such limit.
    :cvar incomplete: the error if a change failed or was skipped.
    :cvar rest: what leads to the changes that are missing then.
    """

    jobs = 1
    confirm_within = 0
    incomplete: type[GpustackError] = ApplyError
    rest = "run the command again: it plans the rest"

    _settled = False
    _sources: Sources | None = None

    def connection(self, parsed_args: argparse.Namespace) -> Connection:
        """The connection to the cloud. Before its first use, an unfinished run on this cloud is reported or completed.

        :raises GpustackError: if an interrupted run cannot be completed.
        """
        connection = super().connection(parsed_args)
        self.settle_once(connection, parsed_args)
        return connection

    def settle_once(self, connection: Connection | None, parsed_args: argparse.Namespace) -> None:
        """Call :meth:`settle` if this command did not yet."""
        if not self._settled:
            self._settled = True
            self.settle(connection, parsed_args)

    def settle(self, connection: Connection | None, parsed_args: argparse.Namespace, undone: str = "") -> None:
        """Report the newest run on this cloud if it is unfinished, and complete an interrupted change of a default.

        :param connection: None for a command that was given Nova's databases alone.
        :param undone: the ID of a run whose undo does both.
        """
        newest, unread = last(lambda: self.place(parsed_args), lambda record: True)
        if unread is not None:
            doubt = "the change of this record may be unfinished: gpustack history"
            self._warn(f"{unread.where}: {unread.what}; {unread.remedy if isinstance(unread, UnbegunError) else doubt}")
        if newest is not None and newest.state == "unfinished" and newest.head.id != undone:
            self._warn(f"the change {newest.head.id} ({newest.head.command}) is unfinished: gpustack history")
        if newest is not None and newest.head.command == "host apply":  # it records its drains only
            newest, _ = last(lambda: self.place(parsed_args), lambda record: record.head.command != "host apply")
        if connection is None or newest is None or newest.head.id == undone:
            return
        changes, findings = completion(newest, LimitsCloud(connection))
        self.report_findings(findings)
        for change in changes:
            self.report(printable(change.describe(), keep=""))
        if changes and not (parsed_args.check or getattr(parsed_args, "sql", False)):
            # Without what the command does before and after its own changes.
            runner = UndoCommand(self.app, self.app_args, cmd_name=self.cmd_name)
            runner._connection, runner._parser = connection, self._parser
            options = argparse.Namespace(**{**vars(parsed_args), "journal": None})
            runner.carry_out(changes, options, completes=newest.head.id)

    def add_change_options(self, parser: argparse.ArgumentParser, *former: str, output: str = "the plan") -> None:
        """Add ``--check``, ``--yes``, ``--journal`` and the output format.

        :param former: names that ``--check`` had; they stay valid for one release.
        :param output: what has the output format.
        """
        if "--format" not in parser._option_string_actions:
            add_format(parser, output)
        add_question(parser, "show the changes, and make none")
        for name in former:
            parser.add_argument(name, dest="check", action="store_true", help=argparse.SUPPRESS)
        place = "write the journal to FILE (default: a new file below ~/.local/state/gpustack/changes)"
        option(parser, "--journal FILE", place)

    def carry_out(
        self,
        changes: Sequence[CloudChange],
        parsed_args: argparse.Namespace,
        *,
        spec: Path | None = None,
        undoes: str = "",
        completes: str = "",
        question: str = "",
        first: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask for confirmation, carry changes out, and report the results.

        :param spec: the spec that the changes follow from.
        :param undoes: the ID of the run that they revert.
        :param completes: the ID of the run that they complete.
        :param question: a text before the question.
        :param first: what must hold when no other run is under way any more.
        :raises gpustack.base.errors.LockedError: if another run changes the cloud.
        :raises GpustackError: as :attr:`incomplete`, if a change failed or was skipped.
        """
        connection = self.optional_connection(parsed_args)
        self.settle_once(connection, parsed_args)
        self.to_do = True
        head = RunHead(
            id=new_id(),
            command=self.words,
            cloud=self.place(parsed_args),
            spec=str(spec or ""),
            spec_sha256=digest(spec),
            undoes=undoes,
            completes=completes,
        )
        if not parsed_args.yes:
            confirm(self, f"{question}Carry out {counted(len(changes), 'operation')}?")
        with self._guarded(connection, head.id, parsed_args.journal) as guard:
            ran = recorded_run(
                connection,
                head,
                changes,
                warn=self._warn,
                clients={change.object_kind: self.client(type(change), parsed_args) for change in changes},
                path=parsed_args.journal,
                jobs=self.jobs,
                tell=self._tell_outcome,
                first=first,
            )
            self._report_results(ran.outcomes, ran.journal, self.undo_of(parsed_args.journal or head.id, parsed_args))
            if guard is not None and (ran.signals or not self._is_kept(guard)):
                remedy = f"`gpustack history` lists the undo; its messages: {guard.log}"
                which = "the changes are" if guard.succeeds() else "the undo failed: not all changes are"
                unconfirmed = self.incomplete(f"not confirmed: {which} undone", remedy=remedy)
                if not ran.signals:
                    raise unconfirmed
                self.report(str(unconfirmed), error=True)
            if ran.signals:
                raise KeyboardInterrupt if signal.SIGINT in ran.signals else SystemExit(128 + ran.signals[0])
        self.refuse_incomplete(ran.outcomes)

    def _is_kept(self, guard: Guardian) -> bool:
        text = f"keep these changes? Without `y` within {self.confirm_within} s, they are undone"
        self.report(text, error=True)
        return guard.asks(self.app.stdin, self.confirm_within)

    def undo_of(self, change: object, parsed_args: argparse.Namespace) -> str:
        """The command that undoes a change, as one types it."""
        own = {"change": str(change), **dict.fromkeys(("wait", "unless_confirmed", "run"))}  # the wait is recorded
        return self.following("undo", own) or f"gpustack undo {quoted(str(change))}"

    def _guarded(
        self, connection: Connection | None, run: str, path: Path | None
    ) -> AbstractContextManager[Guardian | None]:
        if not self.confirm_within or connection is None:
            return contextlib.nullcontext()
        see_terminal(self)
        undo = ["undo", str((path or journal.directory() / f"{run}.jsonl").absolute()), "--yes", "--run", run]
        cloud = str(connection.config.name or "")
        undo += ["--os-cloud", cloud] if cloud in cloud_names() else []
        undo += ["--region", region] if (region := str(connection.config.get_region_name() or "")) else []
        return Guardian(run, (*undo, "--unless-confirmed", str(self.confirm_within)))

    def optional_connection(self, parsed_args: argparse.Namespace) -> Connection | None:
        """The connection to the cloud; None for a command that was given Nova's databases alone."""
        return self.connection(parsed_args)

    def client(self, kind: type[CloudChange], parsed_args: argparse.Namespace) -> Any:  # noqa: ANN401
        """What changes of a kind are made with."""
        return kind.client(self.optional_connection(parsed_args))

    def place(self, parsed_args: argparse.Namespace) -> Cloud:
        """The cloud that the command changes, or the cells of Nova's databases."""
        if (connection := self.optional_connection(parsed_args)) is not None:
            return Cloud(**session.place_of(connection))
        return Cloud(databases=cell_names(self.sources(parsed_args)))

    def sources(self, parsed_args: argparse.Namespace) -> Sources:
        """Nova's databases that the command line names, found once."""
        self._sources = self._sources or sources_of(self, parsed_args)
        return self._sources

    def _tell_outcome(self, outcome: ChangeOutcome) -> None:
        failed = outcome.result not in SUCCESSFUL
        if outcome.detail:
            self.report(f"{printable(outcome.change.name, keep='')}: {outcome.result}: {outcome.detail}", error=failed)
        elif failed or self.verbosity > 1:
            self.report(f"{outcome.result}: {printable(outcome.change.describe(), keep='')}", error=failed)

    def _report_results(self, outcomes: Sequence[ChangeOutcome], path: Path, undo: str) -> None:
        counts = Counter(outcome.result for outcome in outcomes)
        self.report(", ".join(f"{counts[result]} {result}" for result in ChangeResult if counts[result]))
        self.report(f"journal: {path}")
        made = {outcome.result for outcome in outcomes if outcome.change.reversible}
        if counts[ChangeResult.UNKNOWN] and any(isinstance(outcome.change, GuardedChange) for outcome in outcomes):
            self.report(f"to see what was carried out: {undo} --check")
        elif made & {ChangeResult.DONE, ChangeResult.UNKNOWN}:
            self.report(f"to undo: {undo}")

    def refuse_incomplete(self, outcomes: Sequence[ChangeOutcome]) -> None:
        """Check that every change was made.

        :raises GpustackError: the error that ended the run, or :attr:`incomplete`.
        """
        for outcome in outcomes:
            if outcome.lost is not None:
                raise outcome.lost
        if missing := sum(outcome.result not in SUCCESSFUL for outcome in outcomes):
            were, all_of = "was" if missing == 1 else "were", counted(len(outcomes), "operation")
            text = f"{missing} of {all_of} failed or {were} skipped"
            raise self.incomplete(text, remedy=f"see the reasons above; {self.rest}")

    def _warn(self, text: str) -> None:
        self.report(f"warning: {printable(text, keep='')}")


def show_operations(command: Command, operations: Iterable[Operation], form: str = "text") -> None:
    """Print operations with their details.

    :param form: the output format; in the others than ``text``, the operations are the complete output.
    """
    operations = list(operations)
    command.to_do = bool(operations)
    if form != "text":
        command.show_data({"operations": [operation.to_dict() for operation in operations]}, form)
        return
    for operation in operations:
        command.show(printable(operation.line, keep=""))
        for line in operation.details():
            command.show(f"    {printable(line, keep='')}", changes=True)


def refuse_errors(command: Command, findings: Sequence[Finding]) -> None:
    """Print findings.

    :raises PlanError: if one of them is an error.
    """
    command.report_findings(findings)
    if stopped := errors(findings):
        count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
        raise PlanError(f"the plan is blocked by {count}; nothing was changed", remedy="see the findings above")


class UndoCommand(ChangeCommand):
    """Revert a change: `gpustack history` lists them. Without ID, the last change of this cloud.

    With --config-file or --db-url, that can be a repair by a run that was given these databases and no cloud.

    The undo is a plan with reversed operations. Objects that changed since are skipped and listed with both values. An
    undo can be undone. As `image undo`, the last change is that of an image, and so on. Journals of 0.1.0 are read too.
    """

    epilog = """\
gpustack undo --check;
gpustack undo 20261124T061500123456Z --yes;
gpustack undo cleanup.jsonl --config-file /etc/nova/nova.conf --check"""
    _settled = True  # by take_action, when the run to undo is known
    _databases_alone = False
    _again = ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("change", nargs="?", metavar="ID|FILE", help="a change of `gpustack history`, or a journal")
        option(parser, "--wait S", "wait S seconds for each instance (default: as the change did)", type=positive)
        self.add_change_options(parser)
        # Of the process that undoes a run if nobody confirms it (gpustack.changes.guardian).
        parser.add_argument("--unless-confirmed", type=natural, help=argparse.SUPPRESS)
        for name in ("--region", "--run"):
            parser.add_argument(name, help=argparse.SUPPRESS)
        add_databases(parser)
        add_cells(parser, "undo only the repairs of")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Show the plan, ask for confirmation, and carry it out."""
        if parsed_args.unless_confirmed and self._is_confirmed(parsed_args):
            return
        record = self._chosen(parsed_args)
        connection = self.optional_connection(parsed_args)
        self.settle(connection, parsed_args, undone=record.head.id)
        # Without its name, the last change would be this undo.
        self._again = self.undo_of(parsed_args.change or record.head.id, parsed_args)
        changes, final = plan_undo(record, kinds())
        changes, gone = without_gone(changes, connection) if connection else (changes, ())
        if parsed_args.wait:
            wait = {"wait": str(parsed_args.wait)}
            changes = tuple(replace(change, about={**change.about, **wait}) for change in changes)
        if parsed_args.format != "text":
            self.show_data([change.to_record() for change in changes], parsed_args.format)
        else:
            show_operations(self, changes)
            for change in (*final, *gone):
                why = ": the project, host or image no longer exists" if change in gone else ""
                self.report(f"cannot be undone: {printable(change.describe(), keep='')}{why}")
        if not changes:
            self.report(f"{record.head.id}: nothing to undo")
        elif parsed_args.check:
            self._preview(changes, parsed_args)
        else:
            self.carry_out(changes, parsed_args, undoes=record.head.id, first=lambda: self._refuse_continued(record))

    def refuse_incomplete(self, outcomes: Sequence[ChangeOutcome]) -> None:
        """The same command again skips what is skipped, and what needs that, unless the reasons are gone."""
        stays = {outcome.change.key for outcome in outcomes if outcome.result is ChangeResult.SKIPPED}
        for outcome in outcomes:
            stays |= {outcome.change.key} if stays.intersection(outcome.change.needs) else set()
        if self._again:
            rest = all(outcome.result in SUCCESSFUL or outcome.change.key in stays for outcome in outcomes)
            self.rest = f"{'when they no longer apply' if rest else 'to undo the rest'}: {self._again}"
        super().refuse_incomplete(outcomes)

    @staticmethod
    def _refuse_continued(record: RunRecord) -> None:
        """Refuse to undo a run that went on, or that another undo reverted, while this undo was planned."""
        if journal.completed(journal.read(record.path, former())).results != record.results:
            what = "the run went on, or was undone, since this undo was planned"
            remedy = f"run this command again: gpustack undo {quoted(record.head.id)}"
            raise JournalError(what, where=str(record.path), remedy=remedy)

    @staticmethod
    def _is_confirmed(parsed_args: argparse.Namespace) -> bool:
        """Wait as the process of a :class:`Guardian`; a run without a journal of its own changed nothing."""
        path, run = parsed_args.change or "", str(parsed_args.run)
        if is_confirmed(sys.stdin.buffer, parsed_args.unless_confirmed) or not Path(path).is_file():
            return True
        return journal.find(path).head.id != run

    def _chosen(self, parsed_args: argparse.Namespace) -> RunRecord:
        """The change of a name; without it, the last one of the cloud that changed something of the command's kind."""
        if parsed_args.change:
            record = journal.find(parsed_args.change, former())
            record = journal.completed(journal.find(record.head.completes) if record.head.completes else record)
            repairs = {change.kind for change in record.head.changes} <= {"repair", "repair_undo"}
            self._databases_alone = repairs and not record.head.cloud.auth_url
            if hosts := [change.name for change in record.head.changes if change.kind == "host"]:
                what = f"{record.head.id} changed hosts, whose records stay on the hosts"
                raise JournalError(what, where=str(record.path), remedy=f"gpustack host undo {join(hosts)}")
            self._refuse_other(record, self.place(parsed_args))
            return record
        kind = _UNDONE_BY.get(self.words.removesuffix("undo").strip(), "")
        self._databases_alone = kind == "repair"

        def fits(record: RunRecord) -> bool:
            # Without a name, no run of the hosts: the end of a maintenance must not close its host again.
            return record.head.command != "host apply" and any(kind in ("", made.kind) for made in record.made)

        found, unread = last(lambda: self.place(parsed_args), fits)
        if unread is not None and not isinstance(unread, UnbegunError):
            what = f"the last change may be in a record that cannot be read: {unread.what}"
            raise JournalError(what, where=unread.where, remedy=f"{unread.remedy}; or name a change: gpustack undo ID")
        if not kind and (parsed_args.config_file or parsed_args.db_url):
            repaired, _ = last(lambda: Cloud(databases=cell_names(self.sources(parsed_args))), fits)
            if repaired is not None and (found is None or repaired.head.id > found.head.id):
                found, self._databases_alone = repaired, True
        if found is not None:
            return found
        remedy = "`gpustack history` lists the changes"
        raise JournalError(f"no {kind or 'change'} of this cloud is recorded", remedy=remedy)

    def _refuse_other(self, record: RunRecord, here: Cloud) -> None:
        """Refuse the change of another cloud. The undo of a repair compares its cell and compute node by itself."""
        if record.head.cloud.auth_url and record.head.cloud.key != here.key:
            what, remedy = f"the change is of another cloud: {record.head.cloud}", "name that cloud with --os-cloud"
            raise JournalError(what, where=str(record.path), remedy=remedy)
        if not (record.head.cloud.auth_url or self._databases_alone):
            self._warn(f"{record.path}: a journal of 0.1.0 does not name its cloud; check that it is {here.auth_url}")

    def client(self, kind: type[CloudChange], parsed_args: argparse.Namespace) -> Any:  # noqa: ANN401
        """Repairs of clean-up are undone in Nova's databases."""
        if not issubclass(kind, GuardedChange):
            return super().client(kind, parsed_args)
        from gpustack.repair.outcome import Repairing

        return Repairing(sources=self.sources(parsed_args), cloud=self.optional_connection(parsed_args))

    def optional_connection(self, parsed_args: argparse.Namespace) -> Connection | None:
        """None for a change of databases alone, unless a cloud is named."""
        named = self.in_openstack or parsed_args.os_cloud
        return None if self._databases_alone and not named else super().optional_connection(parsed_args)

    def _preview(self, changes: Sequence[CloudChange], parsed_args: argparse.Namespace) -> None:
        """Show which changes would not be undone.

        :raises ApplyError: if there are such changes.
        """

        def tell(outcome: ChangeOutcome) -> None:
            unchanged = "unchanged" if outcome.result is ChangeResult.UNCHANGED else ""
            if detail := outcome.detail or unchanged:
                name = printable(outcome.change.name, keep="")
                self.report(f"{name}: {detail}", error=outcome.result not in SUCCESSFUL)

        apis = {change.object_kind: self.client(type(change), parsed_args) for change in changes}
        outcomes = run(changes, apis, None, tell=tell)
        if left := sum(outcome.result not in SUCCESSFUL for outcome in outcomes):
            noun = "repair" if all(isinstance(change, GuardedChange) for change in changes) else "change"
            raise ApplyError(f"{left} of {counted(len(changes), noun)} would not be undone")

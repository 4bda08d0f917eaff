"""Common parts of the commands: sources of facts, findings on stderr, exit codes, columns for people and programs.

Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from cliff import command, lister

from gpustack.base import silence
from gpustack.base.errors import CHANGES, GpustackError, HostError, PartialError, SpecError, UsageError, VerifyError
from gpustack.base.files import file_errors, refuse_unwritable, write_atomic
from gpustack.base.findings import Finding, Severity, once, report_lines
from gpustack.base.host_groups import host_groups, pattern, total
from gpustack.base.text import listed, printable
from gpustack.cli import decoration, environment, options
from gpustack.cli.inventory import add_inventory, add_limit, expanded, inventory, inventory_hosts
from gpustack.cli.next_steps import IN_TEXT, PLACEHOLDER, SPEC, arguments, step_of
from gpustack.cli.options import Once, add_snapshot, equivalents, option, port, positive, refuse_empty, seconds
from gpustack.cli.progress import reading
from gpustack.cli.registry import command_class, gpustack_name, typed
from gpustack.cli.tables import Fields, FittingTable, PlainCsv
from gpustack.connect.ssh.config import SshOptions

if TYPE_CHECKING:
    from gpustack.hosts.facts.gather import Gathered
    from gpustack.spec.model import Spec

HOSTS_OF_SPEC = "the hosts of SPEC"
THIS_MACHINE = "this machine"
_OF_OPENSTACK = {"--os-cloud": "cloud", "--os-region-name": "region_name"}
"""Options of ``openstack`` itself, and the names of their values."""
_INDENTED = 100_000
"""The longest JSON that is indented, in characters; longer has a line for each row."""


class _Examples(argparse.HelpFormatter):
    """Help that keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class Command(command.Command):
    """Base class of all commands.

    :cvar epilog: the examples at the end of a command's help, separated by semicolons.
    :cvar streams: whether it prints while it works, until it is interrupted; such output has no pager.
    :ivar to_do: whether the command has found something to do, for ``--exit-code``.
    :ivar outcome: an outcome of :data:`gpustack.cli.next_steps.NEXT` that only the command knows.
    :ivar reads_plan: whether a saved plan is in place of the spec.
    """

    epilog = ""
    streams = False
    to_do = False
    outcome = ""
    reads_plan = False
    _noted: tuple[Finding, ...] = ()
    _findings: Sequence[Finding] = ()
    _gathered: Gathered
    _values: Mapping[str, Any] = {}
    _parsers: Mapping[str, argparse.ArgumentParser] = {}

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser of the command, with its own options and arguments after those of cliff."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.formatter_class = type("Help", (_Examples, parser.formatter_class), {})  # type: ignore[arg-type, assignment]
        self.add_arguments(parser)
        self._parser = parser
        report = parser.error

        def error(message: str) -> NoReturn:
            _, _, unknown = message.partition("unrecognized arguments: ")
            option = unknown.partition(" ")[0].partition("=")[0]
            known = equivalents(parser, option)
            report(message + (f"\n  → this command has {' or '.join(known)} instead of {option}" if known else ""))

        parser.error = error  # type: ignore[method-assign]
        refuse_empty(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options and arguments of the command; a subclass adds its own after those of its base."""

    def get_epilog(self) -> str:
        """The examples, one on each line. cliff's implementation would search every installed distribution."""
        return "\n  ".join(("examples:", *re.split(r";\s+", self.epilog.strip()))) if self.epilog else ""

    def report(self, text: str, *, error: bool = False) -> None:
        """Print a message on stderr, made printable; with ``--quiet``, only an error."""
        if error or self.verbosity:
            decoration.write(self.app.stderr, self.completed(text), self._color)

    def show(self, text: str, *, changes: bool = False) -> None:
        """Print text for people on stdout.

        :param changes: whether it contains lines of a diff.
        """
        decoration.write(self.app.stdout, text, self._color, changes=changes)

    def show_hosts(
        self,
        parsed_args: argparse.Namespace,
        texts: Sequence[tuple[str, str]],
        keys: Iterable[str] | None = None,
        kinds: Iterable[object] | None = None,
        *,
        changes: bool = False,
        between: str = "\n\n",
    ) -> None:
        """Print the texts of hosts; equal ones once, without ``--each``.

        :param texts: the name and text of each host.
        :param keys: longer texts to compare; for ``kinds`` see :func:`host_groups`.
        :param between: the text between two hosts.
        """
        if groups := host_groups(texts, keys, kinds, each=parsed_args.each):
            self.show(between.join(group.text for group in groups), changes=changes)

    def show_total(self, things: Mapping[str, int], states: Mapping[str, int]) -> None:
        """Print the totals below a text about several hosts.

        :param things: numbers by noun, the first of which is ``host``.
        """
        if things["host"] > 1:
            self.show(f"\n{total(things, states)}")

    def show_data(self, data: object, form: str) -> None:
        """Print data for programs on stdout, as ``json`` or ``yaml``."""
        text = json.dumps(data, indent=2)
        if form == "yaml":
            import yaml

            text = yaml.safe_dump(json.loads(text), sort_keys=False, width=120).rstrip("\n")
        print(text, file=self.app.stdout)

    @property
    def _color(self) -> str:
        return str(getattr(self.app_args, "color", "auto"))

    @property
    def verbosity(self) -> int:
        """0 with ``--quiet``, 1 by default, 2 and more with ``-v``."""
        return int(getattr(self.app_args, "verbose_level", 1))

    def note(self, findings: Iterable[Finding]) -> None:
        """Take findings that are a part of the output, for ``--findings`` and ``--exit-code``."""
        self._noted = (*self._noted, *findings)

    def report_findings(self, findings: Iterable[Finding], *, brief: bool = False) -> None:
        """Print findings on stderr, most severe first; one about several places is printed once.

        :param brief: whether those of severity ``info`` are printed only with ``-v``.
        """
        found = once(findings)
        self.note(found)
        least = 2 - min(self.verbosity + (not brief), 2) if self.verbosity else 2
        for lines in report_lines(f for f in found if f.severity.rank >= least):
            for line in lines:
                self.report(line, error=True)

    def report_partial(self, gaps: Iterable[str], what: str = "") -> None:
        """Report everything that could not be read.

        :param what: the output, which is then an error; empty if it is none.
        :raises PartialError: if something could not be read.
        """
        missing = dict.fromkeys("; ".join(gap.splitlines()) for gap in gaps)  # tenants choose names in them
        for gap in missing:
            self.report(f"partial: {gap}", error=True)
        if missing and what:
            raise PartialError(f"{what} partial", remedy="see the reasons above")

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Work after the data are printed: findings, failures.

        :raises GpustackError: as an action may.
        """
        self.report_findings(self._findings)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the action, print its data, then run :meth:`after`, and print the next command. cliff calls this."""
        silence.forget()
        self._values = vars(parsed_args)
        options.refuse_written_inputs(self._values)
        for written in filter(None, map(self._values.get, options.REPLACED)):
            with file_errors(GpustackError, "can't be written", written, state="nothing was done"):
                refuse_unwritable(written)
        try:
            is_short = self.streams or hasattr(parsed_args, "yes")  # a question follows
            with contextlib.nullcontext() if is_short else decoration.paged(self.app.stdout):
                code = int(super().run(parsed_args))
            self.app.stdout.flush()
            self.after(parsed_args)
            self._refuse_unread()
            if line := self._next(self.outcome or self._usual_outcome(parsed_args)):
                self.report(line)
        except GpustackError as error:
            # A plan needs a valid spec, and hosts that can be read.
            has_plan = self._noted or not isinstance(error, HostError | SpecError | UsageError)
            if has_plan and (line := self._next("failed" if isinstance(error, VerifyError) else "blocked")):
                error.add_note(line)  # printed below the error
            error.remedy = self.completed(error.remedy or "")
            raise
        finally:
            if path := self._values.get("findings"):
                findings = [finding.to_dict() for finding in dict.fromkeys(self._noted)]
                write_atomic(path, json.dumps({"findings": findings}, indent=2) + "\n", mode=0o600)
        to_do = self.to_do or any(finding.severity is not Severity.INFO for finding in self._noted)
        return CHANGES if to_do and not code and getattr(parsed_args, "exit_code", False) else code

    def _refuse_unread(self) -> None:
        """Print the hosts that could not be read.

        :raises HostError: if there are any; if there was only one host, its own error.
        """
        if "_gathered" not in vars(self) or not (failures := self._gathered.failures):
            return
        if (total := len(failures) + len(self._gathered.hosts)) == 1:
            raise failures[0].error
        for group in host_groups([(failure.host, f"{failure.error}") for failure in failures]):
            self.report(group.text, error=True)
        others = "; the others were read" if len(failures) < total else ""
        raise HostError(f"{len(failures)} of {total} hosts could not be read", remedy=f"the reasons are above{others}")

    @property
    def in_openstack(self) -> bool:
        """Whether ``openstack`` runs the command."""
        return hasattr(self.app, "client_manager")

    @property
    def words(self) -> str:
        """The command without its values, by its name in gpustack."""
        name = " ".join((self.cmd_name or "").split())
        return gpustack_name(name) if self.in_openstack else name

    def _usual_outcome(self, parsed_args: argparse.Namespace) -> str:
        worst = max((finding.severity.rank for finding in self._noted), default=0)
        if worst == Severity.ERROR.rank:
            return "blocked"
        if self.to_do:
            return "changed" if getattr(parsed_args, "check", None) is False else "planned"
        return "warned" if worst else "done"

    def _next(self, outcome: str) -> str | None:
        """The line that names the next command; None if there is none, with ``--quiet`` or in a format for programs."""
        form = self._values.get("format", self._values.get("formatter", "text"))
        if not self.verbosity or form not in ("text", "table"):
            return None
        worst = max(self._noted, key=lambda finding: finding.severity.rank, default=None)
        code = worst.code.value if worst and (outcome != "blocked" or worst.severity is Severity.ERROR) else None
        step = step_of(self.words, outcome, {"spec": environment.spec_at_hand(), **self._values, "code": code})
        return f"Next: {line}" if step and (line := self.following(*step)) else None

    def completed(self, text: str) -> str:
        """A text whose commands have the options of this one that they have too: they work as printed."""

        def one(command: re.Match[str]) -> str:
            of_cloud = self._values.get("os_cloud") or os.environ.get("OS_CLOUD")
            own = {
                name for name, value in {**self._values, "os_cloud": of_cloud}.items() if value and value is not True
            }
            given = PLACEHOLDER.sub(lambda p: "" if p[1].replace("-", "_") in own else p[0], command[2])
            line = self.following(command[1], {}, given)
            return command[0] if line is None else line + SPEC.sub("", given)

        before, *step = text.partition("Next: ")
        has_any = not self._values.keys().isdisjoint(("spec", "os_cloud")) or environment.spec_at_hand()
        return "".join((IN_TEXT.sub(one, before), *step)) if has_any else text

    def following(self, name: str, own: Mapping[str, object], given: str | None = None) -> str | None:
        """Another command as one types it, with its own arguments and those of this one; None if it can't get all."""
        if name not in self._parsers:
            parser = command_class(name)(self.app, self.app_args, cmd_name=name).get_parser(name)
            self._parsers = {**self._parsers, name: parser}
        chosen = {option: getattr(self.app_args, name, None) for option, name in _OF_OPENSTACK.items()}
        values = {**self._values, "spec": None} if self.reads_plan and given is not None else self._values
        words = arguments(own, values, self._parser.get_default, self._parsers[name], given)
        return None if words is None else f"{typed(name, chosen, openstack=self.in_openstack)} {words}".rstrip()

    def _generate_columns_and_selector(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str]
    ) -> tuple[list[str], list[bool] | None]:
        """cliff's implementation, with an error message for unknown columns."""
        try:
            chosen: tuple[list[str], list[bool] | None] = super()._generate_columns_and_selector(  # type: ignore[misc]
                parsed_args, column_names
            )
        except ValueError:
            remedy = f"columns: {', '.join(column_names)}"
            raise UsageError(f"there is no column {' or '.join(parsed_args.columns)}", remedy=remedy) from None
        return chosen


class Lister(Command, lister.Lister):
    """A command that prints a list, as a table or in cliff's other formats.

    :cvar nothing: the text instead of a table without rows; empty if the command reports why there are none.
    """

    nothing = "nothing to list"

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Print the list; tables fit the terminal."""
        self.formatter = {"table": FittingTable(), "csv": PlainCsv()}.get(parsed_args.formatter, self.formatter)
        rows = list(data)
        if parsed_args.formatter == "table" and not rows:
            if self.nothing:
                self.report(self.nothing)
            return 0
        if parsed_args.formatter == "json" and not parsed_args.noindent:
            # Python's encoder of indented JSON is not in C, and takes as long as reading the hosts.
            lines = [json.dumps(dict(zip(column_names, row, strict=True))) for row in rows]
            if sum(map(len, lines)) > _INDENTED:
                self.app.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
                return 0
        return int(super().produce_output(parsed_args, column_names, rows))


class ShowOne(Command, Fields):
    """A command that prints the fields of one thing."""


def is_for_machines(parsed_args: argparse.Namespace) -> bool:
    """Whether the output format keeps the structure of the data (JSON, YAML)."""
    return parsed_args.formatter in ("json", "yaml")


def add_format(parser: argparse.ArgumentParser, output: str = "the output", others: Sequence[str] = ()) -> None:
    """Add the output format of a command that prints text or data (:meth:`Command.show_data`).

    :param others: further formats.
    """
    text = f"format of {output} (default: %(default)s)"
    parser.add_argument("-f", "--format", choices=("text", "json", "yaml", *others), default="text", help=text)


def add_exit_code(parser: argparse.ArgumentParser) -> None:
    """Add ``--exit-code`` and ``--findings``, which :meth:`Command.run` serves."""
    text = f"exit with {CHANGES} if there is something to do, or a finding with severity warning or error"
    option(parser, "--exit-code", text)
    option(parser, "--findings FILE", "write all findings to FILE, as JSON")


def see_terminal(command: Command) -> None:
    """Check that there is a terminal for the confirmation.

    :raises UsageError: if standard input is not a terminal.
    """
    if not command.app.stdin.isatty():
        remedy = "check the changes with --check, then repeat the command with --yes"
        raise UsageError("no terminal for confirmation", remedy=remedy)


def confirm(command: Command, question: str) -> None:
    """Ask for confirmation on stderr.

    :raises UsageError: if standard input is not a terminal.
    :raises GpustackError: if the answer is not yes.
    """
    see_terminal(command)
    command.app.stderr.write(f"{printable(question)} [y/N] ")
    command.app.stderr.flush()
    if command.app.stdin.readline().strip().lower() not in ("y", "yes"):
        raise GpustackError("cancelled; nothing was changed")


# --- sources of facts --------------------------------------------------------------------------------------------


def add_hosts(parser: argparse.ArgumentParser, selection: str, default: str) -> None:
    """Add ``[HOST…]``, which may be before, between and after options, and ``-l``.

    :param selection: the option with which HOST is a selection, and what it selects from, for the help.
    :param default: the hosts that are used without HOST, for the help.
    """
    parser.add_argument(
        "hosts",
        nargs="*",
        default=[],  # without a default, argparse shows HOST as required
        metavar="HOST",
        help=f"hosts, as [user@]name; ranges such as gpu-[01:04] are expanded. {selection} (default: {default})",
    )
    add_limit(parser)
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]


def add_each(parser: argparse.ArgumentParser) -> None:
    """Add ``--each``; without it, equal hosts are shown once (:mod:`gpustack.base.host_groups`)."""
    option(parser, "--each", "show every host (default: equal hosts are shown once)")


def add_source_options(parser: argparse.ArgumentParser, default: str = HOSTS_OF_SPEC) -> None:
    """Add ``[HOST…]``, ``--local``, ``--root``, ``--snapshot`` and the SSH options to a command.

    :param default: the hosts that are read without any of them, for the help.
    """
    add_hosts(parser, "With --snapshot or -i, HOST selects from their hosts", default)
    source = parser.add_argument_group("other sources of facts").add_mutually_exclusive_group()
    option(source, "--local", "read this machine")
    option(source, "--root DIR", "read this directory as the / of a host", action=Once)
    add_snapshot(source)
    ssh = parser.add_argument_group("SSH", "~/.ssh/config and known hosts apply; host keys are always checked")
    add_ssh_options(ssh, timeout=30.0)
    add_jobs(ssh)


def add_ssh_options(group: argparse._ArgumentGroup, *, timeout: float) -> None:
    """Add the SSH options that :func:`ssh_options` reads."""
    add_inventory(group)
    option(group, "--user NAME", "log in as this user")
    option(group, "--port N", "connect to this port", type=port)
    option(group, "--identity FILE", "log in with this private key first")
    option(group, "--sudo", "read as root, through sudo -n")
    option(group, "--ssh-config FILE", "use this instead of ~/.ssh/config")
    option(group, "--known-hosts FILE", "use this instead of ~/.ssh/known_hosts")
    text = "wait S seconds for a host to connect, and then to answer"
    option(group, "--timeout S", text, type=seconds, default=timeout)


def add_jobs(group: argparse._ArgumentGroup) -> None:
    """Add the number of hosts that are read concurrently."""
    option(group, "--jobs N", "read N hosts at the same time", type=positive, default=32)


def ssh_options(parsed_args: argparse.Namespace) -> SshOptions:
    """SSH options from the options of :func:`add_ssh_options`; the inventory is read when a host is reached."""
    return SshOptions(
        user=parsed_args.user,
        port=parsed_args.port,
        identity=parsed_args.identity,
        config=parsed_args.ssh_config,
        known_hosts=parsed_args.known_hosts,
        timeout=parsed_args.timeout,
        sudo=parsed_args.sudo,
        **({"settings": lambda name: inventory(parsed_args).settings(name)} if parsed_args.inventory else {}),
    )


def gather(command: Command, parsed_args: argparse.Namespace, spec: Spec | None = None) -> Gathered:
    """Read the facts selected by the options of :func:`add_source_options`, with progress on a terminal.

    Hosts that failed are in the result, and reported after the data.

    :param spec: names the hosts if the command line does not; without both, this machine is read.
    :raises UsageError: when options exclude each other.
    """
    from gpustack.hosts.facts import gather as facts
    from gpustack.spec.model import hosts_of

    groups, hosts = None, list(parsed_args.hosts)
    for name in ("local", "root", "snapshot"):
        other = "-i" if parsed_args.inventory else "HOST" if hosts and name != "snapshot" else ""
        if other and getattr(parsed_args, name):
            raise UsageError(f"--{name} and {other} exclude each other", remedy=f"omit --{name} or {other}")
    if parsed_args.limit and not parsed_args.inventory:
        raise UsageError("--limit selects from an inventory", remedy="name it with -i, or name HOST")
    if parsed_args.inventory:
        hosts = inventory_hosts(parsed_args, spec, command.report)
        groups = {host: inventory(parsed_args).groups(host) for host in hosts}
    elif hosts or parsed_args.local or parsed_args.root or parsed_args.snapshot or spec is None:
        hosts = expanded(hosts)
        parsed_args.local |= not (hosts or parsed_args.root or parsed_args.snapshot)
    else:
        hosts = list(hosts_of(spec, str(parsed_args.spec)))
    if parsed_args.sudo and (parsed_args.root or parsed_args.snapshot):
        raise UsageError("--sudo applies only to hosts and this machine", remedy="omit --sudo")
    with reading(command, len(hosts) if not parsed_args.snapshot else 0) as reported:
        gathered = command._gathered = facts.gather(
            hosts,
            root=parsed_args.root,
            snapshot=parsed_args.snapshot,
            ssh=ssh_options(parsed_args),
            jobs=parsed_args.jobs,
            reported=reported,
            keep=getattr(parsed_args, "save", None) is not None,
            groups=groups,
            warn=lambda text: command.report(f"warning: {text}"),
        )
    if others := gathered.others:
        names, own = pattern(others), listed(list(dict.fromkeys(others.values())), 2)
        command.report(f"warning: {names} calls itself {own}; its facts are kept under {names}")
    return gathered

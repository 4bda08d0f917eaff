"""``gpustack host apply``, ``verify`` and ``undo``: the playbooks, for those who don't want to call Ansible."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.cli.common import Command, expanded
from gpustack.cli.text import printable
from gpustack.errors import GpustackError, UsageError

if TYPE_CHECKING:
    from gpustack.play.record import HostRecord, Record

Told = Callable[["Record", Sequence[str]], None]


class _Play(Command):
    """What the three have in common.

    :cvar playbook: the playbook that does it.
    """

    playbook = ""
    _records: tuple[HostRecord, ...] = ()
    _log: Path

    def _add_hosts(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "hosts",
            nargs="*",
            metavar="HOST",
            help="the hosts, as [user@]name; ranges as gpu-[01:04] are expanded. With -i: those of the inventory that"
            " are meant",
        )
        group = parser.add_argument_group("Ansible", "its configuration applies; SSH host keys are always checked")
        group.add_argument("-i", "--inventory", metavar="FILE", help="an Ansible inventory: file, directory or script")
        group.add_argument("-l", "--limit", metavar="PATTERN", help="only these hosts, as an Ansible host pattern")
        group.add_argument("--user", metavar="NAME", help="user to log in as")
        group.add_argument("--private-key", type=Path, metavar="FILE", help="key to log in with")
        group.add_argument("-K", "--ask-become-pass", action="store_true", help="ask for sudo's password")
        group.add_argument("--forks", type=int, metavar="N", help="hosts at the same time (Ansible's own: 5)")
        group.add_argument(
            "-e",
            "--extra-vars",
            action="append",
            default=[],
            metavar="VARS",
            help="more variables for the playbook, as ansible-playbook takes them; may be repeated",
        )
        parser.add_argument(
            "-f", "--format", choices=("text", "json"), default="text", help="the output format (%(default)s)"
        )
        parser.add_argument("--log", type=Path, metavar="FILE", help="where the full log goes (default: made up)")
        # HOST may stand after options as well.
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {}

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        """The hosts when there is no inventory."""
        return tuple(expanded(parsed_args.hosts))

    @contextlib.contextmanager
    def _stage(self, parsed_args: argparse.Namespace) -> Iterator[Runner]:
        """Make the inventory and the log, and drive playbooks with them."""
        directory = tempfile.mkdtemp(prefix="gpustack-")
        try:
            inventory, limit = self._inventory(parsed_args, Path(directory))
            self._log = parsed_args.log or default_log(self.playbook)
            make_log(self._log)
            yield Runner(
                inventory=inventory,
                limit=limit,
                variables=self._variables(parsed_args),
                arguments=_arguments(parsed_args),
                log=self._log,
                directory=Path(directory),
            )
        finally:
            import shutil

            shutil.rmtree(directory, ignore_errors=True)

    def _inventory(self, parsed_args: argparse.Namespace, directory: Path) -> tuple[str, str | None]:
        from gpustack.files import write_atomic
        from gpustack.play.inventory import inventory_of

        if parsed_args.inventory:
            patterns = [*parsed_args.hosts, *([parsed_args.limit] if parsed_args.limit else [])]
            if len(patterns) > 1 and parsed_args.limit:
                raise UsageError("HOST and --limit say the same: give one of them")
            return parsed_args.inventory, ",".join(patterns) or None
        path = directory / "inventory.json"
        write_atomic(path, inventory_of(self._names(parsed_args)), mode=0o600)
        return str(path), parsed_args.limit

    def _tell(self, parsed_args: argparse.Namespace, records: Sequence[HostRecord], *, checked: bool = False) -> None:
        """Print the summary on stdout, and what went wrong on stderr."""
        from gpustack.play.show import problems, summary

        self._records = tuple(records)
        if parsed_args.format == "json":
            text = json.dumps([one.to_dict() for one in records], indent=2, ensure_ascii=True)
        else:
            for one in records:
                if told := problems(one):
                    self.say(told)
            text = printable(summary(records, checked=checked))
        print(text, file=self.app.stdout)

    def after(self, parsed_args: argparse.Namespace) -> int:
        """End with the error of the host where it went worst."""
        from gpustack.play.show import verdict

        if self.verbosity:
            self.say(f"log: {self._log}")
        if error := verdict(self._records, str(self._log)):
            raise error
        return 0

    def _show(self, text: str) -> None:
        print(printable(text, keep="\n\t"), file=self.app.stdout)


class Runner:
    """Runs playbooks with the same inventory, variables and log."""

    def __init__(
        self,
        *,
        inventory: str,
        limit: str | None,
        variables: Mapping[str, Any],
        arguments: Sequence[str],
        log: Path,
        directory: Path,
    ) -> None:
        self._common = {"inventory": inventory, "variables": variables, "arguments": arguments}
        self._limit = limit
        self._log = log
        self._directory = directory

    def run(
        self, playbook: str, told: Told, *, check: bool = False, hosts: Sequence[str] | None = None
    ) -> dict[str, HostRecord]:
        """Run a playbook; → what became of each host.

        :param hosts: only these; all that are meant when None.
        """
        from gpustack.files import write_atomic
        from gpustack.play.inventory import limit_of
        from gpustack.play.run import Call, play

        limit = self._limit
        if hosts is not None:
            path = self._directory / "hosts"
            write_atomic(path, limit_of(hosts), mode=0o600)
            limit = f"@{path}"
        call = Call(playbook=playbook, limit=limit, check=check, **self._common)  # type: ignore[arg-type]
        return play(call, self._log, told).hosts


class _Change(_Play):
    """A command that shows what it would do, asks, and does it.

    :cvar first: the playbook that shows it, and whether with ``--check``.
    """

    first: tuple[str, bool] = ("", False)
    question = ""

    def _add_choices(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-y", "--yes", action="store_true", help="don't ask before hosts are changed")
        parser.add_argument(
            "--check", action="store_true", help="change nothing: Ansible's --check --diff of the whole, into the log"
        )
        parser.add_argument(
            "--reboot", action="store_true", help="reboot hosts that need it, a few at a time, and verify them"
        )
        parser.add_argument(
            "--serial", type=int, metavar="N", help="hosts to change at a time (default: one, then four at a time)"
        )
        group = parser.add_argument_group("hosts in service", "what is done in Nova around a reboot")
        group.add_argument(
            "--os-cloud", metavar="NAME", help="the cloud whose Nova is told: a name in clouds.yaml, or envvars"
        )
        policies = ("refuse", "live-migrate", "cold-migrate", "stop")
        group.add_argument("--guests", choices=policies, help="what becomes of guests there (default: refuse)")
        group.add_argument("--device-guests", choices=policies, help="the same for guests with a device of the host")

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        found: dict[str, Any] = {"gpustack_reboot": parsed_args.reboot}
        if parsed_args.serial:
            found["gpustack_serial"] = parsed_args.serial
        nova = {
            "gpustack_cloud": parsed_args.os_cloud,
            "gpustack_guests": parsed_args.guests,
            "gpustack_device_guests": parsed_args.device_guests,
        }
        return {**found, **{name: value for name, value in nova.items() if value}}

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Plan, show, ask, change."""
        from gpustack.play.record import Outcome

        if not parsed_args.check and not parsed_args.yes and not sys.stdin.isatty():
            raise UsageError("there is nobody to ask whether to go on", remedy="look with --check, then say --yes")
        playbook, check = (self.playbook, True) if parsed_args.check else self.first
        with self._stage(parsed_args) as runner:
            with progress(self, "planning") as told:
                planned = runner.run(playbook, told, check=check)
            for one in planned.values():
                if one.text and parsed_args.format == "text":
                    self._show(f"{one.text}\n")
            ready = [one for one in planned.values() if not one.problem and one.todo]
            if parsed_args.check or not ready:
                self._tell(parsed_args, list(planned.values()), checked=parsed_args.check)
                return 0
            self._ask(parsed_args, ready)
            with progress(self, "working") as told:
                done = runner.run(self.playbook, told, hosts=[one.host for one in ready])
            left = {one.host: one for one in ready if one.host not in done}
            for one in left.values():
                one.outcome = Outcome.NOT_BEGUN
            self._tell(parsed_args, [done.get(name, one) for name, one in planned.items()])
        return 0

    def _ask(self, parsed_args: argparse.Namespace, ready: Sequence[HostRecord]) -> None:
        if parsed_args.yes:
            return
        rebooted = [one.host for one in ready if one.reboot]
        reboot = "no reboot" if not parsed_args.reboot or not rebooted else f"reboot {', '.join(rebooted)}"
        self.app.stderr.write(printable(f"{self.question} {', '.join(one.host for one in ready)}? ({reboot}) [y/N] "))
        self.app.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise GpustackError("nothing was changed")


class Apply(_Change):
    """Prepare hosts so that their GPUs can go to guests: plan all, show, ask, then change a few at a time.

    The same as the playbook prepare.yml. Without -i the hosts are those that are named, or those of the spec. A host
    whose plan is refused, or that can't be reached, is left alone; a failure ends the run before the next hosts.
    """

    playbook = "prepare"
    first = ("plan", False)
    question = "Prepare"
    epilog = """\
gpustack host apply gpustack.yaml --check; gpustack host apply gpustack.yaml gpu-[01:04] --reboot;
gpustack host apply gpustack.yaml -i inventory --limit rack7 --reboot --yes"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The spec, the hosts and what may be done."""
        parser = super().get_parser(prog_name)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self._add_hosts(parser)
        self._add_choices(parser)
        return parser

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"gpustack_spec": str(parsed_args.spec.absolute()), **super()._variables(parsed_args)}

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        return _hosts_or_spec(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Check the spec before Ansible is started."""
        _check_spec(parsed_args)
        return super().take_action(parsed_args)


class Undo(_Change):
    """Give hosts back: take away every file and argument of gpustack's, a few hosts at a time. Needs no spec.

    The same as the playbook undo.yml. What would be done is shown first, and asked about.
    """

    playbook = "undo"
    first = ("undo", True)
    question = "Give back"
    epilog = "gpustack host undo gpu01 --check; gpustack host undo -i inventory gpu01 --reboot"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The hosts and what may be done."""
        parser = super().get_parser(prog_name)
        self._add_hosts(parser)
        self._add_choices(parser)
        parser.add_argument("--force", action="store_true", help="remove files, too, that somebody has changed since")
        return parser

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"gpustack_force": parsed_args.force, **super()._variables(parsed_args)}

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        if not parsed_args.hosts:
            raise UsageError("no host is named", remedy="name hosts, or an inventory with -i")
        return super()._names(parsed_args)


class Verify(_Play):
    """Prove on running hosts that their GPUs can go to guests. Changes nothing.

    The same as the playbook verify.yml. Without -i the hosts are those that are named, or those of the spec. Exit code
    16 when a host is not ready.
    """

    playbook = "verify"
    epilog = "gpustack host verify gpustack.yaml; gpustack host verify gpustack.yaml -i inventory --limit rack7 -f json"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The spec and the hosts."""
        parser = super().get_parser(prog_name)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self._add_hosts(parser)
        return parser

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"gpustack_spec": str(parsed_args.spec.absolute())}

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        return _hosts_or_spec(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Verify the hosts and print what was found."""
        _check_spec(parsed_args)
        with self._stage(parsed_args) as runner, progress(self, "verifying") as told:
            records = list(runner.run(self.playbook, told).values())
        if parsed_args.format == "text":
            for one in records:
                if one.text:
                    self._show(f"{one.text}\n")
        self._tell(parsed_args, records)
        return 0


def _check_spec(parsed_args: argparse.Namespace) -> None:
    from gpustack.spec.load import load_spec

    load_spec(parsed_args.spec)


def _hosts_or_spec(parsed_args: argparse.Namespace) -> tuple[str, ...]:
    from gpustack.play.inventory import hosts_of
    from gpustack.spec.load import load_spec

    if parsed_args.hosts:
        return tuple(expanded(parsed_args.hosts))
    return hosts_of(load_spec(parsed_args.spec), str(parsed_args.spec))


def _arguments(parsed_args: argparse.Namespace) -> list[str]:
    found = [f"--extra-vars={text}" for text in parsed_args.extra_vars]
    if parsed_args.user:
        found.append(f"--user={parsed_args.user}")
    if parsed_args.private_key:
        found.append(f"--private-key={parsed_args.private_key}")
    if parsed_args.forks:
        found.append(f"--forks={parsed_args.forks}")
    if parsed_args.ask_become_pass:
        found.append("--ask-become-pass")
    return found


def default_log(playbook: str) -> Path:
    """A new log's path: below the state directory of the user (XDG Base Directory Specification)."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return state / "gpustack" / "log" / f"{playbook}-{stamp}-{os.getpid()}.log"


def make_log(path: Path) -> None:
    """Make a log that only its owner can read: plans and addresses of hosts are in it. One that is there is kept.

    :raises GpustackError: when it can't be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError as error:
        what = f"the log can't be written: {error.strerror}; nothing was done"
        raise GpustackError(what, where=str(path), remedy="name another place with --log") from error


@contextlib.contextmanager
def progress(command: Command, doing: str) -> Iterator[Told]:
    """Tell on stderr how it goes: a line a host that moves on a terminal, one line a host when it is done in a pipe."""
    if not command.verbosity:
        yield lambda record, over: None
        return
    if not command.app.stderr.isatty():
        from gpustack.play.show import line

        def told(record: Record, over: Sequence[str]) -> None:
            for name in over:
                if doing == "planning" or record.hosts[name].begun or record.hosts[name].problem:
                    command.say(f"{doing}: {line(record.hosts[name], checked=record.checked)}")

        yield told
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from gpustack.play.show import line

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=command.app.stderr), transient=True) as shown:
        rows: dict[str, Any] = {}

        def moved(record: Record, over: Sequence[str]) -> None:
            for name in record.active:
                if name not in rows:
                    rows[name] = shown.add_task(name, total=None)
                shown.update(rows[name], description=printable(f"{name}: {record.hosts[name].task}"))
            for name in over:
                if name in rows:
                    shown.remove_task(rows.pop(name))
                shown.console.print(printable(line(record.hosts[name], checked=record.checked)), markup=False)

        yield moved

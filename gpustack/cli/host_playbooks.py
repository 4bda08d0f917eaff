"""``gpustack host apply``, ``verify`` and ``undo``: playbooks, with inventory, log, confirmation and summary."""

import argparse
import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.errors import GpustackError, UsageError
from gpustack.base.files import file_errors, make_directory, open_private, state_dir, write_atomic
from gpustack.base.host_groups import host_groups, pattern, patterns_of
from gpustack.changes.host_run import recorded
from gpustack.cli.common import HOSTS_OF_SPEC, Command, add_each, add_format, add_hosts, confirm, see_terminal
from gpustack.cli.inventory import add_inventory, expanded, inventory_hosts
from gpustack.cli.options import option, positive
from gpustack.cli.progress import ProgressListener, progress
from gpustack.connect.playbooks.inventory import inventory_of, inventory_of_this_machine, limit_of
from gpustack.connect.playbooks.record import HostRecord, RunOutcome
from gpustack.connect.playbooks.results import RunResults, place_for, save
from gpustack.connect.playbooks.run import Call, as_files, configuration, play
from gpustack.connect.playbooks.show import line, problems, states, summary, verdict
from gpustack.prepare.host.results import seen
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec, hosts_of


class Results(Command):
    """Base class of the commands that print the results of hosts."""

    playbook = ""
    _records: tuple[HostRecord, ...] = ()

    def _summarize(
        self, parsed_args: argparse.Namespace, records: Sequence[HostRecord], *, checked: bool = False
    ) -> None:
        """Print the summary on stdout, and problems on stderr."""
        self._records = tuple(records)
        self.to_do = any(record.changed for record in records)
        if not checked and any(record.reboot and not record.rebooted for record in records):
            self.outcome = "reboot"
        if parsed_args.format != "text":
            groups = patterns_of(host_groups((record.host, line(record, checked=checked)) for record in records))
            data = [{**record.to_dict(), "group": groups[record.host]} for record in records]
            self.show_data(data, parsed_args.format)
            return
        found = [(record.host, problem) for record in records if (problem := problems(record))]
        for group in host_groups(found, each=parsed_args.each):
            self.report(group.text, error=True)
        # A verification has its own line for each host.
        shown = [record for record in records if self.playbook != "verify" or record.problem or not record.text]
        self.show_hosts(parsed_args, summary(shown, checked=checked), between="\n")
        self.show_total({"host": len(records)}, states(records, self.playbook, checked=checked))

    def _show_texts(self, parsed_args: argparse.Namespace, records: Iterable[HostRecord]) -> None:
        """Print plans, or verifications, with ``-v`` every check."""
        if parsed_args.format != "text":
            return
        if self.playbook == "verify":
            texts = [(r.host, (self.verbosity > 1 and r.details) or r.text) for r in records if r.text]
        else:
            texts = [(record.host, f"{record.text}\n") for record in records if record.text]
        self.show_hosts(parsed_args, texts, changes=self.playbook != "verify", between="\n")


class Play(Results):
    """Base class of the commands that run a playbook.

    :cvar playbook: the playbook that the command runs.
    :cvar default_hosts: the hosts that are used if none is named, for the help.
    """

    default_hosts = HOSTS_OF_SPEC
    _call: Call
    _directory: Path
    _log: Path
    _record: Path
    _run: RunResults

    def _add_hosts(self, parser: argparse.ArgumentParser) -> None:
        add_hosts(parser, "With -i, HOST selects from the inventory", self.default_hosts)
        add_each(parser)
        option(parser, "--local", "work on this machine, without SSH")
        group = parser.add_argument_group(
            "Ansible",
            "Ansible's configuration applies, but ansible.cfg of the current directory only if ANSIBLE_CONFIG names it;"
            " SSH host keys are always checked",
        )
        add_inventory(group)
        option(group, "--user NAME", "log in as this user")
        option(group, "--private-key FILE", "log in with this private key")
        group.add_argument("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
        option(group, "--forks N", "work on N hosts at the same time (default: 5)", type=positive)
        group.add_argument(
            "-e",
            "--extra-vars",
            action="append",
            default=[],
            metavar="VARS",
            help="set variables of the playbook, as in ansible-playbook; can be repeated. For secrets use"
            " @FILE: other users can read a command line",
        )
        add_format(parser)
        option(parser, "--log FILE", "write the log to FILE (default: a new file below ~/.local/state/gpustack/log)")
        option(parser, "--record FILE", "write the record for host results to FILE (default: a new file, as the log)")

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, object]:
        return {}

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        """The hosts of the generated inventory (used without -i)."""
        return tuple(expanded(parsed_args.hosts))

    @contextlib.contextmanager
    def _stage(self, parsed_args: argparse.Namespace) -> Iterator[None]:
        """Write the inventory and the log, which :meth:`_play` uses."""
        path = getattr(parsed_args, "spec", None)
        specs = () if path is None else (seen(path),)  # checked before Ansible starts
        directory = self._directory = Path(tempfile.mkdtemp(prefix="gpustack-"))
        try:
            for text in configuration(os.environ, Path.cwd()).lines():
                self.report(text)
            inventory, limit = self._inventory(parsed_args, directory)
            name = f"{self.playbook}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.log"
            default = state_dir() / "log" / name
            self._log = parsed_args.log or default
            make_log(self._log)
            self._record = place_for(parsed_args.record or default.with_suffix(".json"), self.playbook)
            self._run = RunResults(playbook=self.playbook, specs=specs, hosts=())
            self._call = Call(
                playbook=self.playbook,
                inventory=inventory,
                limit=limit,
                variables=self._variables(parsed_args),
                arguments=_arguments(parsed_args, directory),
            )
            yield
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _play(
        self, playbook: str, listener: ProgressListener, *, check: bool = False, hosts: Sequence[str] | None = None
    ) -> dict[str, HostRecord]:
        """Run a playbook and return the records of its hosts.

        :param hosts: a subset of the hosts; all of the inventory (within the limit) when None.
        """
        limit = self._call.limit
        if hosts is not None:
            path = self._directory / "hosts"
            write_atomic(path, limit_of(hosts), mode=0o600)
            limit = f"@{path}"
        call = replace(self._call, playbook=playbook, limit=limit, check=check)
        return play(call, self._log, self._directory, listener).hosts

    def _spec(self, parsed_args: argparse.Namespace) -> Spec | None:
        """The spec whose hosts are used."""
        return None

    def _inventory(self, parsed_args: argparse.Namespace, directory: Path) -> tuple[list[str], str | None]:
        if parsed_args.local and (parsed_args.hosts or parsed_args.inventory):
            other = "HOST" if parsed_args.hosts else "-i"
            raise UsageError(f"--local and {other} exclude each other", remedy=f"omit --local or {other}")
        chosen, inventory = directory / "chosen", parsed_args.inventory
        if inventory:
            names = inventory_hosts(parsed_args, self._spec(parsed_args), self.report)
        else:
            inventory = [str(directory / "inventory.json")]
            names = [platform.node()] if parsed_args.local else list(self._names(parsed_args))
            text = inventory_of_this_machine() if parsed_args.local else inventory_of(names)
            write_atomic(Path(inventory[0]), text, mode=0o600)
            if parsed_args.limit:
                return inventory, parsed_args.limit
        # As the operator's choice: what the spec lacks is then an error.
        write_atomic(chosen, limit_of(name.rpartition("@")[2] for name in names), mode=0o600)
        return inventory, f"@{chosen}"

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Leave the record of the run, and end with the error of the most severe outcome."""
        self.report(f"log: {self._log}")
        save(replace(self._run, checked=getattr(parsed_args, "check", False), hosts=self._records), self._record)
        if error := verdict(self._records, f"see the log: {self._log}"):
            raise error


def _arguments(parsed_args: argparse.Namespace, directory: Path) -> list[str]:
    given = {"user": parsed_args.user, "private-key": parsed_args.private_key, "forks": parsed_args.forks}
    arguments = as_files(parsed_args.extra_vars, directory)
    arguments += [f"--{name}={value}" for name, value in given.items() if value]
    return [*arguments, "--ask-become-pass"] if parsed_args.ask_become_pass else arguments


def make_log(path: Path) -> None:
    """Create a log with mode 0600, since it contains plans and addresses of hosts. An existing file is kept.

    :raises GpustackError: when it can't be created.
    """
    what, state, remedy = "the log can't be written", "nothing was done", "name another file with --log"
    with file_errors(GpustackError, what, path, state=state, remedy=remedy):
        make_directory(path.parent)
        os.close(open_private(path))


class _Change(Play):
    """A command that shows changes, asks for confirmation, and applies them.

    :cvar first: the playbook that shows the changes, and whether it runs with ``--check``.
    """

    first: tuple[str, bool] = ("", False)
    question = ""

    def _add_choices(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-y", "--yes", action="store_true", help="don't ask for confirmation")
        option(parser, "--check", "change nothing: show the changes, with the differences of files in the log")
        option(parser, "--reboot", "reboot hosts that need it, a few at a time, and verify them")
        option(parser, "--serial N", "change N hosts at a time (default: one, then four at a time)", type=positive)
        group = parser.add_argument_group("hosts in service", "actions in Nova before and after a reboot")
        option(group, "--os-cloud NAME", "disable the host in this cloud meanwhile: a name in clouds.yaml, or envvars")
        policies = ("refuse", "live-migrate", "cold-migrate", "stop")
        group.add_argument("--guests", choices=policies, help="action for instances on the host (default: refuse)")
        about = "action for instances with a device of the host (default: refuse)"
        group.add_argument("--device-guests", choices=policies, help=about)

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, object]:
        given = {
            "gpustack_serial": parsed_args.serial,
            "gpustack_cloud": parsed_args.os_cloud,
            "gpustack_guests": parsed_args.guests,
            "gpustack_device_guests": parsed_args.device_guests,
        }
        return {"gpustack_reboot": parsed_args.reboot} | {name: value for name, value in given.items() if value}

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.local and parsed_args.reboot:
            remedy = "omit --reboot, then reboot the machine and run gpustack host verify --local"
            raise UsageError("--reboot can't reboot this machine: gpustack runs on it", remedy=remedy)
        self._spec(parsed_args)  # its errors are first
        if not parsed_args.check and not parsed_args.yes:
            see_terminal(self)
        playbook, check = (self.playbook, True) if parsed_args.check else self.first
        with self._stage(parsed_args):
            with progress(self, "planning") as listener:
                planned = self._play(playbook, listener, check=check)
            self._show_texts(parsed_args, planned.values())
            ready = [record for record in planned.values() if not record.problem and record.todo]
            if parsed_args.check or not ready:
                self._summarize(parsed_args, list(planned.values()), checked=parsed_args.check)
                return
            self._ask(parsed_args, ready)
            names = [record.host for record in ready]
            command = " ".join((self.cmd_name or "").split())
            with recorded(command, getattr(parsed_args, "spec", None), names) as note:
                with progress(self, "working") as listener:
                    finished = self._play(self.playbook, listener, hosts=names)
                for record in ready:
                    record.outcome = RunOutcome.NOT_BEGUN
                self._summarize(parsed_args, [finished.get(name, record) for name, record in planned.items()])
                for record in ready:
                    note(finished.get(record.host, record))

    def _ask(self, parsed_args: argparse.Namespace, ready: Sequence[HostRecord]) -> None:
        if parsed_args.yes:
            return
        rebooted = [record.host for record in ready if record.reboot and record.may_reboot]
        reboot = f"reboot {pattern(rebooted)}" if rebooted else "no reboot"
        confirm(self, f"{self.question} {pattern(record.host for record in ready)}? ({reboot})")


class _OfSpec(Play):
    """A command with a spec; without HOST, for its hosts."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self._add_hosts(parser)

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, object]:
        return {"gpustack_spec": str(parsed_args.spec.absolute()), **super()._variables(parsed_args)}

    def _spec(self, parsed_args: argparse.Namespace) -> Spec | None:
        return load_spec(parsed_args.spec)

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        if parsed_args.hosts:
            return super()._names(parsed_args)
        return hosts_of(load_spec(parsed_args.spec), str(parsed_args.spec))


class HostApplyCommand(_OfSpec, _Change):
    """Prepare hosts for GPU passthrough: show the plans, ask for confirmation, change a few hosts at a time.

    Runs the playbook prepare.yml. A host whose plan is blocked, or that is unreachable, is skipped. A failure ends the
    run before the next hosts.
    """

    playbook = "prepare"
    first = ("plan", False)
    question = "Prepare"
    epilog = """\
gpustack host apply gpustack.yaml --check; gpustack host apply gpustack.yaml gpu-[01:04] --reboot;
gpustack host apply gpustack.yaml -i inventory --limit rack7 --reboot --yes"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        self._add_choices(parser)
        option(parser, "--adopt", "adopt configuration by hand for the same devices")
        option(parser, "--live", "bind devices on the running host where possible, instead of a reboot")
        option(parser, "--trial", "try new kernel arguments for one boot first")

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, object]:
        modes = [name for name in ("adopt", "live", "trial") if getattr(parsed_args, name)]
        return {**super()._variables(parsed_args), **{f"gpustack_{name}": True for name in modes}}


class HostUndoCommand(_Change):
    """Restore hosts: remove every file and kernel argument of gpustack, a few hosts at a time. Needs no spec.

    Runs the playbook undo.yml. Shows the changes and asks for confirmation first.
    """

    playbook = "undo"
    default_hosts = "none; with -i, all hosts of the inventory"
    first = ("undo", True)
    question = "Restore"
    epilog = "gpustack host undo gpu01 --check; gpustack host undo -i inventory gpu01 --reboot"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self._add_hosts(parser)
        self._add_choices(parser)
        option(parser, "--force", "also remove files that were modified since gpustack wrote them")

    def _variables(self, parsed_args: argparse.Namespace) -> dict[str, object]:
        return {"gpustack_force": parsed_args.force, **super()._variables(parsed_args)}

    def _names(self, parsed_args: argparse.Namespace) -> tuple[str, ...]:
        if not parsed_args.hosts:
            raise UsageError("no host is named", remedy="name hosts, --local for this machine, or an inventory with -i")
        return super()._names(parsed_args)


class HostVerifyCommand(_OfSpec):
    """Verify on running hosts that their GPUs are available for passthrough. Changes nothing.

    Prints one line for each host that is ready; with -v, every check. Runs the playbook verify.yml. The exit code is 16
    if a host is not ready.
    """

    playbook = "verify"
    epilog = "gpustack host verify gpustack.yaml; gpustack host verify gpustack.yaml -i inventory --limit rack7 -f json"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self._stage(parsed_args), progress(self, "verifying") as listener:
            records = list(self._play(self.playbook, listener).values())
        self._show_texts(parsed_args, records)
        self._summarize(parsed_args, records)

"""Common parts of ``gpustack host apply``, ``verify`` and ``undo``: options, inventory, log and summary."""

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
from gpustack.base.files import digest, file_error, make_private, make_private_directory, state_dir, write_atomic
from gpustack.base.host_groups import host_groups, patterns_of
from gpustack.cli.common import HOSTS_OF_SPEC, Command, add_each, add_format, add_hosts
from gpustack.cli.inventory import add_inventory, expanded, inventory_hosts
from gpustack.cli.options import option
from gpustack.cli.progress import ProgressListener
from gpustack.connect.playbooks.configuration import configuration
from gpustack.connect.playbooks.inventory import inventory_of, inventory_of_this_machine, limit_of
from gpustack.connect.playbooks.record import HostRecord
from gpustack.connect.playbooks.results import RunResults, save
from gpustack.connect.playbooks.run import Call, as_files, play
from gpustack.connect.playbooks.show import line, problems, states, summary, verdict
from gpustack.prepare.host.results import seen
from gpustack.spec.model import Spec


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
        option(group, "--forks N", "work on N hosts at the same time (default: 5)", type=int)
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
        directory = self._directory = Path(tempfile.mkdtemp(prefix="gpustack-"))
        try:
            for text in configuration(os.environ, Path.cwd()).lines():
                self.report(text)
            inventory, limit = self._inventory(parsed_args, directory)
            name = f"{self.playbook}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.log"
            default = state_dir() / "log" / name
            self._log, self._record = parsed_args.log or default, parsed_args.record or default.with_suffix(".json")
            make_log(self._log)
            path = getattr(parsed_args, "spec", None)
            specs = () if path is None else (seen(path, digest(path)),)
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

    def _summarize(
        self, parsed_args: argparse.Namespace, records: Sequence[HostRecord], *, checked: bool = False
    ) -> None:
        """Print the summary, and leave the record of the run."""
        super()._summarize(parsed_args, records, checked=checked)
        save(replace(self._run, checked=checked, hosts=tuple(records)), self._record)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """End with the error of the most severe outcome."""
        self.report(f"log: {self._log}")
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
    try:
        make_private_directory(path.parent)
        make_private(path)
    except OSError as error:
        what, state, remedy = "the log can't be written", "nothing was done", "name another file with --log"
        raise file_error(GpustackError, what, path, error, state=state, remedy=remedy) from error

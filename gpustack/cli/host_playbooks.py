"""``gpustack host apply``, ``verify`` and ``undo``: the playbooks with one log, a confirmation and a summary."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from gpustack.base.errors import UsageError
from gpustack.base.host_groups import pattern
from gpustack.changes.host_run import recorded
from gpustack.cli.common import confirm, see_terminal
from gpustack.cli.options import option, positive
from gpustack.cli.playbook_run import Play
from gpustack.cli.progress import progress
from gpustack.connect.playbooks.record import HostRecord, RunOutcome
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec, hosts_of


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
        group.add_argument(
            "--device-guests", choices=policies, help="action for instances with a device of the host (default: refuse)"
        )

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
            raise UsageError(
                "--reboot can't reboot this machine: gpustack runs on it",
                remedy="omit --reboot, then reboot the machine and run gpustack host verify --local",
            )
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
                    note(finished.get(record.host, record))
            self._summarize(parsed_args, [finished.get(name, record) for name, record in planned.items()])

    def _ask(self, parsed_args: argparse.Namespace, ready: Sequence[HostRecord]) -> None:
        if parsed_args.yes:
            return
        rebooted = [record.host for record in ready if record.reboot]
        reboot = "no reboot" if not parsed_args.reboot or not rebooted else f"reboot {pattern(rebooted)}"
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

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Check the spec before Ansible starts."""
        load_spec(parsed_args.spec)
        super().take_action(parsed_args)


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
        load_spec(parsed_args.spec)
        with self._stage(parsed_args), progress(self, "verifying") as listener:
            records = list(self._play(self.playbook, listener).values())
        self._show_texts(parsed_args, records)
        self._summarize(parsed_args, records)

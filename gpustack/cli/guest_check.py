"""``gpustack guest check``: the GPUs of a guest, from inside or by its console log."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpustack.base.columns import Column
from gpustack.base.errors import UsageError
from gpustack.base.findings import Finding
from gpustack.cli.common import Lister, add_exit_code, add_ssh_options, ssh_options
from gpustack.cli.options import Once, option, positive, read_log
from gpustack.cli.output import Table, table
from gpustack.hosts.health import kernel_log
from gpustack.offer.guest import check, source
from gpustack.offer.guest.check import Promise, findings, promise, rows
from gpustack.offer.guest.inside import console
from gpustack.spec.load import load_spec


class GuestCheckCommand(Lister):
    """Check the GPUs of a guest: number, driver, address space, and the reasons in the kernel's messages.

    Run it in the guest, read the guest over SSH, or read the output of `openstack console log show`. With SPEC and
    --flavor, or with --gpus, the GPUs are compared with those that the instance must have. Nothing is changed. The
    column Findings is ok, unknown, or has the codes of the findings, which are printed on stderr.
    """

    epilog = """\
gpustack guest check --ssh debian@203.0.113.7 --sudo --flavor g1.a100.2 gpustack.yaml;
openstack console log show gpu-vm | gpustack guest check --console - --gpus 2"""

    _has_none = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "spec", type=Path, nargs="?", metavar="SPEC", help="the spec of --flavor, usually gpustack.yaml"
        )
        promise = parser.add_mutually_exclusive_group()
        option(promise, "--flavor NAME", "the flavor of the instance, by its name in the cloud")
        option(promise, "--gpus N", "the number of GPUs that the guest must have", type=positive)
        source = parser.add_mutually_exclusive_group()
        option(source, "--console FILE", "read this console log (-: standard input)", type=str)
        option(source, "--root DIR", "read this directory as the / of a guest", action=Once)
        option(source, "--ssh HOST", "read this guest over SSH, as [user@]name (default: this machine)")
        ssh = parser.add_argument_group("SSH", "~/.ssh/config and known hosts apply; host keys are always checked")
        add_ssh_options(ssh, timeout=30.0)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        if (parsed_args.flavor is None) != (parsed_args.spec is None):
            raise UsageError("SPEC and --flavor need each other", remedy="give both, or neither")
        promised = Promise(count=parsed_args.gpus) if parsed_args.gpus else None
        if parsed_args.flavor is not None:
            promised = promise(load_spec(parsed_args.spec), parsed_args.flavor)
        where, facts = self._facts(parsed_args)
        self._findings = tuple(findings(facts, promised, where))
        self._has_none = facts["gpus"] == [] and promised is None
        described = rows(facts, self._findings, where)
        return table(parsed_args, _columns(self._findings), described)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings; without GPUs and without a promise there is nothing to compare."""
        if self._has_none:
            self.report("the guest has no GPU; to compare it with its flavor, give SPEC and --flavor, or --gpus")
        super().after(parsed_args)

    def _facts(self, parsed_args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
        """The guest's name and facts."""
        if parsed_args.sudo and (parsed_args.root or parsed_args.console is not None):
            raise UsageError("--sudo applies only to guests and this machine", remedy="omit --sudo")
        if parsed_args.console is not None:
            log = read_log(parsed_args.console)
            return "guest", console.facts(log, check.consoles(), kernel_log.table())
        if parsed_args.ssh is not None:
            return parsed_args.ssh.rpartition("@")[2], source.over_ssh(parsed_args.ssh, ssh_options(parsed_args))
        if parsed_args.sudo:
            return "guest", source.with_sudo(ssh_options(parsed_args))
        return "guest", source.local(parsed_args.root)


def _columns(found: Sequence[Finding]) -> tuple[Column[dict[str, Any]], ...]:
    """The columns of a guest's GPUs."""

    def codes(row: dict[str, Any]) -> str:
        good = "ok" if row["driver"] and not found else "-" if row["driver"] else "unknown"
        return ", ".join(dict.fromkeys(row["findings"])) or good

    return (
        Column("guest", lambda row: row["guest"], "Guest"),
        Column("address", lambda row: row["address"], "Address"),
        Column("card", lambda row: row["card"], "Card"),
        Column(
            "driver",
            lambda row: row["driver"],
            "Driver",
            lambda row: "unknown" if row["driver"] is None else row["driver"] or "none",
        ),
        Column("findings", lambda row: row["findings"], "Findings", codes),
    )

"""Options for asking hosts over SSH, and the plan that their answers have settled."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.cli.common import Command, Lister, reading
from gpustack.cli.numbers import positive

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.cleanup.hypervisor import Usage
    from gpustack.cleanup.plan import CleanupPlan, Selection, Sources
    from gpustack.ssh.config import SshOptions

_WHY = "hosts are asked over SSH which devices their domains use"


def add_hypervisors(parser: argparse.ArgumentParser, why: str = _WHY) -> argparse._ArgumentGroup:
    """Add the options for asking hosts over SSH."""
    group = parser.add_argument_group("hypervisors", why)
    group.add_argument("--user", metavar="NAME", help="log in as this user")
    group.add_argument("--identity", type=Path, metavar="FILE", help="offer this private key first")
    group.add_argument("--sudo", action="store_true", help="look as root, through sudo -n")
    group.add_argument("--ssh-config", type=Path, metavar="FILE", help="use this instead of ~/.ssh/config")
    group.add_argument("--known-hosts", type=Path, metavar="FILE", help="use this instead of ~/.ssh/known_hosts")
    group.add_argument("--timeout", type=float, default=15.0, metavar="S", help="wait S seconds (default: %(default)g)")
    return group


def add_ask_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the comparison of domains and rows (class T)."""
    group = add_hypervisors(parser)
    group.add_argument(
        "--ask-hosts",
        action="store_true",
        help="compare the domains of the hosts with Nova's rows in both directions, for class T",
    )
    group.add_argument(
        "--jobs", type=positive, default=32, metavar="N", help="ask N hosts at the same time (default: %(default)s)"
    )


def ssh_of(parsed_args: argparse.Namespace) -> SshOptions:
    """How to reach hosts."""
    from gpustack.ssh.config import SshOptions

    return SshOptions(
        user=parsed_args.user,
        identity=parsed_args.identity,
        config=parsed_args.ssh_config,
        known_hosts=parsed_args.known_hosts,
        timeout=parsed_args.timeout,
        sudo=parsed_args.sudo,
    )


def asked_plan(
    command: Command | Lister,
    parsed_args: argparse.Namespace,
    sources: Sources,
    selection: Selection,
    cloud: Connection | None = None,
) -> tuple[CleanupPlan, dict[str, Usage] | None]:
    """The plan, and what the hosts answer; None where they are not to be asked."""
    from gpustack.cleanup import domain_drift as drift
    from gpustack.cleanup import plan
    from gpustack.cleanup.hypervisor import Hypervisors

    if not parsed_args.ask_hosts:
        return plan.make(sources, selection, cloud), None
    with Hypervisors(ssh=ssh_of(parsed_args)) as hypervisors:

        def ask(hosts: set[str]) -> dict[str, Usage]:
            with reading(command, len(hosts)) as answered:
                return drift.ask_all(hosts, hypervisors.ask, parsed_args.jobs, answered)

        answers = ask(plan.hosts_to_ask(sources, selection))
        made = plan.make(sources, selection, cloud, answers)
        # The other ends of migrations, and deleted compute nodes.
        answers |= ask({host for verdict in made.verdicts for host in verdict.asks} - answers.keys())
    return plan.settled(made, answers), answers

"""Options for querying hosts over SSH, and the plan that takes their answers into account."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpustack.cli.common import Command, add_jobs, add_ssh_options, ssh_options
from gpustack.cli.options import option
from gpustack.cli.progress import reading
from gpustack.cloud import Connection
from gpustack.repair.hypervisor import Hypervisors, Usage, ask_all

if TYPE_CHECKING:
    from gpustack.novadb.sources import Sources
    from gpustack.repair.plan import CleanupPlan, Selection

_WHY = "gpustack asks hosts over SSH which devices their domains use"


def add_hypervisors(parser: argparse.ArgumentParser, why: str = _WHY) -> argparse._ArgumentGroup:
    """Add the options for querying hosts over SSH."""
    group = parser.add_argument_group("hypervisors", why)
    add_ssh_options(group, timeout=15.0)
    return group


def add_ask_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the option that compares domains and rows (class T)."""
    group = add_hypervisors(parser)
    option(group, "--ask-hosts", "ask every host, and compare its domains with Nova's rows, for class T")
    add_jobs(group)


def asked_plan(
    command: Command, parsed_args: argparse.Namespace, sources: Sources, selection: Selection, cloud: Connection | None
) -> tuple[CleanupPlan, dict[str, Usage] | None]:
    """The plan, and the answers of the hosts; None without ``--ask-hosts``."""
    from gpustack.repair import plan

    if not parsed_args.ask_hosts:
        return plan.make(sources, selection, cloud), None
    with Hypervisors(ssh=ssh_options(parsed_args)) as hypervisors:

        def ask(hosts: set[str]) -> dict[str, Usage]:
            with reading(command, len(hosts)) as answered:
                return ask_all(hosts, hypervisors.ask, parsed_args.jobs, answered)

        answers = ask(plan.hosts_to_ask(sources, selection))
        cleanup_plan = plan.make(sources, selection, cloud, answers)
        # Second round: the other hosts of migrations, and deleted compute nodes.
        answers |= ask({host for verdict in cleanup_plan.verdicts for host in verdict.asks} - answers.keys())
    return plan.settled(cleanup_plan, answers), answers

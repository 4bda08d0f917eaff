"""``gpustack doctor``: check whether this machine is ready to run gpustack, on one screen."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpustack.base.text import paragraph
from gpustack.cli.cleanup_options import URL_VARIABLE, add_databases
from gpustack.cli.common import Command, add_format, add_ssh_options, ssh_options
from gpustack.cli.inventory import inventory_hosts
from gpustack.cli.options import option
from gpustack.operate.doctor import cloud, databases, machine, spec, ssh
from gpustack.operate.doctor.check import Check, exit_code
from gpustack.spec.model import Spec, hosts_of


class DoctorCommand(Command):
    """Check whether this machine is ready to run gpustack. Contacts no host; changes nothing.

    Checks Python, packages, Ansible, SSH, the spec, the cloud and Nova's databases. Parts that nobody has set up are
    not errors. Exit codes: 0 no check failed, otherwise the code with which a command would fail.
    """

    epilog = "gpustack doctor; gpustack doctor gpustack.yaml --os-cloud admin; gpustack doctor -f json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        about = "the spec (default: gpustack.yaml, if it is here)"
        parser.add_argument("spec", nargs="?", type=Path, metavar="SPEC", help=about)
        option(parser, "--os-cloud NAME", "a cloud of clouds.yaml; OS_CLOUD and OS_* variables hold")
        add_format(parser)
        add_databases(parser)
        add_ssh_options(parser.add_argument_group("SSH"), timeout=30.0)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Run the checks one after the other; print each result at once."""
        results = []
        for check in checks(parsed_args):
            results.append(check)
            if parsed_args.format == "text":
                self.show(_shown(check))
                self.app.stdout.flush()
        if parsed_args.format != "text":
            self.show_data([check.to_dict() for check in results], parsed_args.format)
        return exit_code(results)


def checks(parsed_args: argparse.Namespace) -> Iterator[Check]:
    """The checks, with the options of a command."""
    yield from machine.checks()
    valid, of_spec = spec.checks(parsed_args.spec)
    yield from ssh.checks(ssh_options(parsed_args), lambda: _hosts(parsed_args, valid))
    yield from of_spec
    yield from cloud.checks(getattr(parsed_args, "os_cloud", None), valid, parsed_args.config_file)
    url = getattr(parsed_args, "db_url", None) or (None if parsed_args.config_file else os.environ.get(URL_VARIABLE))
    yield from databases.checks(parsed_args.config_file, url)


def _hosts(parsed_args: argparse.Namespace, valid: Spec | None) -> Sequence[str]:
    """The hosts of the spec, with -i those of the inventory."""
    if parsed_args.inventory:
        return inventory_hosts(parsed_args, valid, lambda text: None)
    return hosts_of(valid, None) if valid else ()


def _shown(check: Check) -> str:
    """A result as a line, the rest of its text below, and the remedy."""
    head = f"{check.state.value:<14}  {check.name:<15}  "
    indent = " " * 16
    remedy = _paragraphs(check.remedy, f"{indent}→ ", f"{indent}  ")
    return "\n".join([*_paragraphs(check.seen, head, " " * len(head)), *remedy])


def _paragraphs(text: str, first: str, others: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        yield paragraph(line, others if number else first, others)

"""``gpustack doctor``: check whether this machine is ready to run gpustack, on one screen."""

from __future__ import annotations

import argparse
import os
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.cli.cleanup_options import URL_VARIABLE, add_databases
from gpustack.cli.common import Command, add_format, add_ssh_options, ssh_options

if TYPE_CHECKING:
    from gpustack.doctor.check import Check

_WIDEST = 100


class DoctorCommand(Command):
    """Check whether this machine is ready to run gpustack. Contacts no host; changes nothing.

    Checks Python, packages, Ansible, SSH, the spec, the cloud and Nova's databases. Parts that nobody has set up are
    not errors. Exit codes: 0 no check failed, otherwise the code with which a command would fail.
    """

    epilog = "gpustack doctor; gpustack doctor gpustack.yaml --os-cloud admin; gpustack doctor -f json"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "spec", nargs="?", type=Path, metavar="SPEC", help="the spec (default: gpustack.yaml, if it is here)"
        )
        parser.add_argument(
            "--os-cloud", metavar="NAME", help="a cloud of clouds.yaml; OS_CLOUD and OS_* variables hold"
        )
        add_format(parser)
        add_databases(parser)
        add_ssh_options(parser.add_argument_group("SSH"), timeout=30.0)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Run the checks one after the other; print each result at once."""
        from gpustack.doctor.check import exit_code

        checks = []
        for check in _checks(parsed_args):
            checks.append(check)
            if parsed_args.format == "text":
                self.show(_shown(check, min(shutil.get_terminal_size().columns, _WIDEST)))
                self.app.stdout.flush()
        if parsed_args.format != "text":
            self.show_data([check.to_dict() for check in checks], parsed_args.format)
        return exit_code(checks)


def _checks(parsed_args: argparse.Namespace) -> Iterator[Check]:
    from gpustack.doctor import cloud, databases, machine, spec, ssh

    yield from machine.checks()
    valid, of_spec = spec.checks(parsed_args.spec)
    yield from ssh.checks(ssh_options(parsed_args), spec.hosts_of(valid))
    yield from of_spec
    yield from cloud.checks(parsed_args.os_cloud)
    url = parsed_args.db_url or (None if parsed_args.config_file else os.environ.get(URL_VARIABLE))
    yield from databases.checks(parsed_args.config_file or (), url)


def _shown(check: Check, width: int) -> str:
    """A result as a line, the rest of its text below, and the remedy."""
    head = f"{check.state.value:<14}  {check.name:<15}  "
    indent = " " * 16
    return "\n".join(
        [
            *_filled(check.seen.splitlines(), head, " " * len(head), width),
            *_filled(check.remedy.splitlines(), f"{indent}→ ", f"{indent}  ", width),
        ]
    )


def _filled(lines: Iterable[str], first: str, others: str, width: int) -> Iterator[str]:
    for line in lines:
        yield textwrap.fill(
            " ".join(line.split()),
            width,
            initial_indent=first,
            subsequent_indent=others,
            break_long_words=False,
            break_on_hyphens=False,
        )
        first = others

"""``gpustack example …``: example hosts and an embedded cloud to try gpustack on, from ``nova-gpustack[demo]``."""

import argparse
import importlib
from operator import itemgetter
from pathlib import Path
from types import ModuleType

from gpustack.base.columns import Column
from gpustack.base.errors import GpustackError
from gpustack.cli.common import Command, Lister
from gpustack.cli.options import add_snapshot, option
from gpustack.cli.output import Table, table

_COMMANDS = "gpustack_demo.examples.commands"


def _demo() -> ModuleType:
    """The functions of the demo's distribution, which operators usually do not install.

    :raises GpustackError: when it is not installed.
    """
    try:
        return importlib.import_module(_COMMANDS)
    except ModuleNotFoundError as error:
        if error.name not in ("gpustack_demo", "gpustack_demo.examples", _COMMANDS):
            raise
        remedy = "pip install 'nova-gpustack[demo]'; in a checkout, pip install . ./demo"
        raise GpustackError("the example hosts are not installed", remedy=remedy) from error


class _Example(Command):
    streams = True

    def _print(self, text: str) -> None:
        """Print a line and flush it: starting a cloud takes a while."""
        print(text, file=self.app.stdout, flush=True)


class ExampleCreateCommand(_Example):
    """Write the example hosts as directories, and their Ansible inventory.

    Each directory looks like a host's /. Stand-ins play the distribution's tools and the boot on it.
    """

    epilog = "gpustack example create try; cd try; gpustack scan --root gpu01"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR", help="a new or empty directory")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        _demo().create(parsed_args.directory, self._print)


class ExampleCloudCommand(_Example):
    """Start a real Nova on loopback with the example hosts, and print its environment; installs Nova if needed.

    Nova, Placement, Keystone and Glance come from PyPI. Below Nova is its own stand-in for libvirt.
    """

    epilog = "gpustack example cloud --snapshot hosts.json --rendered nova"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_snapshot(parser, " (default: hosts.json)")
        text = "read Nova's configuration from a directory that nova render wrote (default: %(default)s)"
        option(parser, "--rendered DIR", text, default=Path("nova"))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        _demo().cloud(parsed_args.snapshot or [Path("hosts.json")], parsed_args.rendered, self._print)


class ExampleListCommand(_Example, Lister):
    """List the clouds of `gpustack example cloud` that run on this machine."""

    epilog = "gpustack example list"

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        columns = (Column("directory", itemgetter(0), "Directory"), Column("pid", itemgetter(1), "Process"))
        return table(parsed_args, columns, _demo().clouds())


class ExampleStopCommand(_Example):
    """Stop a cloud of `gpustack example cloud`, and remove its directory."""

    epilog = "gpustack example stop; gpustack example stop try/cloud"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        help_text = "the directory of the cloud (default: %(default)s)"
        parser.add_argument("cloud", nargs="?", type=Path, default=Path("cloud"), metavar="DIR", help=help_text)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        _demo().stop(parsed_args.cloud)
        self._print(f"{parsed_args.cloud}: stopped and removed")


class ExampleLeakCommand(_Example):
    """Lose the GPUs of an instance: migrate it, and let libvirt fail when the migration is confirmed."""

    epilog = "gpustack example leak vm1"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("server", metavar="SERVER", help="name or ID of an instance of the embedded cloud")
        text = "the directory of the cloud that example cloud runs (default: %(default)s)"
        option(parser, "--cloud DIR", text, default=Path("cloud"))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        _demo().leak(parsed_args.cloud / "demo.json", parsed_args.server, self._print)

"""The base of the commands that ``openstack`` runs too: ``openstack gpu …``.

In ``openstack`` they use its connection, and ``openstack`` itself parses options such as ``--os-cloud``.
"""

import argparse
from typing import Any

from gpustack.base.errors import GpustackError
from gpustack.cli.common import Command
from gpustack.cli.options import option
from gpustack.cloud import Connection
from gpustack.cloud.session import limited, shared


class OpenStackCommand(Command):
    """Base class of these commands: a cloud, and the same exit codes in both programs."""

    _connection: Connection | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--os-cloud``, unless ``openstack`` has parsed it."""
        if not self.in_openstack:
            text = "use this cloud of clouds.yaml (default: OS_CLOUD and the other OS_* variables)"
            option(parser, "--os-cloud NAME", text)

    def connection(self, parsed_args: argparse.Namespace) -> Connection:
        """The connection to the cloud, one for all requests of a run."""
        if self._connection is None:
            manager: Any = getattr(self.app, "client_manager", None)
            if self.in_openstack:
                self._connection = limited(manager.sdk_connection)
            else:
                self._connection = shared(parsed_args.os_cloud, getattr(parsed_args, "region", None))
        return self._connection

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command. ``openstack`` has no exit codes for kinds of errors, so they are set here."""
        try:
            return super().run(parsed_args)
        except GpustackError as error:
            if not self.in_openstack:
                raise
            self.report("\n".join((str(error), *getattr(error, "__notes__", ()))), error=True)
            return error.exit_code

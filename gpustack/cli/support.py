"""``gpustack support bundle``: one archive for a support request, without secrets."""

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.errors import UsageError
from gpustack.base.text import counted
from gpustack.cli import doctor
from gpustack.cli.change import add_question
from gpustack.cli.cleanup_hosts import add_hypervisors
from gpustack.cli.common import Lister, confirm, ssh_options
from gpustack.cli.options import option
from gpustack.cli.output import Table, table
from gpustack.cli.progress import counting
from gpustack.cli.why import WhyCommand
from gpustack.nova_options.masking import Masking
from gpustack.operate.support.collect import COLUMNS, MOST, BundleContents, BundlePart, files, of_nova, parts, write
from gpustack.repair.hypervisor import Hypervisors


class SupportBundleCommand(WhyCommand, Lister):
    """Collect what a request for support needs into one archive, without secrets.

    The archive has versions, the checks of `gpustack doctor`, the answers of `gpustack why` for the named hosts and
    instances, the last failures of instances, the spec, the files of --config-file, findings, gpustack's records and
    facts of hosts. Options that Nova, Placement or their libraries mark as secret, and unknown options, are masked, and
    so are passwords in URLs, tokens and private keys. Names of projects, users and instances, serial numbers and
    network addresses become pseudonyms. The list is shown before anything is written. Sources that can't be read are
    left out and listed.
    """

    epilog = """\
gpustack support bundle; gpustack support bundle --check --config-file /etc/nova/nova.conf;
gpustack support bundle --host gpu07 --ask-host --instance vm1 --out /tmp/gpu07.tar.gz --yes"""

    _files: Sequence[BundlePart]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--out FILE", "write the archive to FILE (default: gpustack-support-TIME.tar.gz)")
        option(parser, "--host HOST…", "answer `gpustack why host` for this host")
        option(parser, "--instance ID…", "answer `gpustack why instance` for this one")
        option(parser, "--keep-names", "keep names, serial numbers and network addresses")
        add_question(parser, "list the files, and write none")
        ssh = add_hypervisors(parser, "gpustack reads the GPUs of hosts, and the devices of their domains, over SSH")
        option(ssh, "--ask-host", "ask the hosts of --host and --instance")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        self._path = parsed_args.out or Path(f"gpustack-support-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
        if os.path.lexists(self._path):
            raise UsageError("the file exists", where=str(self._path), remedy="name another file with --out")
        masking = Masking(keep_names=parsed_args.keep_names)
        known = argparse.Namespace(**{**vars(parsed_args), "config_file": [*of_nova(parsed_args.config_file)]})
        with (
            counting(self, "asking Nova and Placement") as progress,
            Hypervisors(ssh=ssh_options(parsed_args)) as hypervisors,
        ):
            more = ({"ask": hypervisors.ask} if parsed_args.ask_host else {}) | self.asked(known, parsed_args.host)
            contents = BundleContents(
                cloud=lambda: self.connection(parsed_args),
                sources=self.sources(known, progress=progress, **more),
                checks=lambda: list(doctor.checks(known)),
                configuration=parsed_args.config_file,
                hosts=parsed_args.host,
                instances=parsed_args.instance,
            )
            self._files = files(parts(contents, masking), masking)
        return table(parsed_args, COLUMNS, self._files)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Ask, and write the archive."""
        self.close((), self.unread, partial=False)
        total = sum(len(part.content) for part in self._files)
        masked = counted(sum(part.masked for part in self._files), "masked value")
        self.report(f"{counted(len(self._files), 'file')}, {total / (1 << 20):.1f} of {MOST >> 20} MiB, {masked}")
        if parsed_args.check:
            return
        if not parsed_args.yes:
            confirm(self, f"Write {self._path}?")
        write(self._path, self._files)
        self.report(f"{self._path}: read it before you send it")

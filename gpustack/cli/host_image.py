"""``gpustack host image``: the files for the image of hosts in image mode."""

import argparse
from pathlib import Path

from gpustack.base.errors import PlanError
from gpustack.base.findings import errors
from gpustack.base.host_groups import pattern
from gpustack.base.operations import counted
from gpustack.cli.common import Command, add_exit_code, add_source_options, gather
from gpustack.cli.options import option
from gpustack.prepare.host.image import image_for, save
from gpustack.spec.hosts import with_groups
from gpustack.spec.load import load_spec


class HostImageCommand(Command):
    """Write the files that prepare hosts of image mode (bootc, ostree) into a directory. Changes no host.

    Kernel arguments, modprobe and dracut files, and lines for the Containerfile of their image. After the hosts have
    booted the new image, `gpustack host verify` checks them like any other.
    """

    epilog = """\
gpustack host image gpustack.yaml gpu01 --sudo --out image;
gpustack host image gpustack.yaml --snapshot hosts.json --out image"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_source_options(parser)
        add_exit_code(parser)
        option(parser, "--out DIR", "write the files below this new directory", required=True)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        spec = load_spec(parsed_args.spec)
        gather(self, parsed_args, spec)
        image = image_for(with_groups(spec, self._gathered.groups), self._gathered.hosts)
        self.report_findings(image.findings)
        if errors(image.findings):
            raise PlanError("the image is refused; nothing was written", remedy="follow the remedies of the errors")
        paths = save(image, parsed_args.out)
        self.report(f"{parsed_args.out}: {counted(len(paths), 'file')} for the image of {pattern(image.hosts)}")
        return 0

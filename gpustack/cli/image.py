"""``gpustack image …``, and ``openstack gpu image …``: images for instances with GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code, is_for_machines, release_of
from gpustack.cli.gpu import CLOUD_TIMEOUT
from gpustack.errors import CHANGES
from gpustack.findings import Finding, Severity
from gpustack.text import printable

if TYPE_CHECKING:
    from gpustack.image.check import Checked
    from gpustack.image.cloud import ImageCloud


class ImageCommand(OpenStackCommand):
    """Base class: read the images, and check those for the flavors of the spec."""

    _checked: tuple[Checked, ...] = ()
    _findings: list[Finding]

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self.add_images(parser)
        parser.add_argument(
            "--snapshot",
            type=Path,
            metavar="FILE",
            help="read the facts of hosts from a file of scan --save, for their architectures",
        )
        parser.add_argument(
            "--release", metavar="NAME", help="check for this release of Nova (default: that of the spec)"
        )
        return parser

    def add_images(self, parser: argparse.ArgumentParser) -> None:
        """Add the images to the command line."""
        parser.add_argument(
            "images",
            nargs="*",
            metavar="IMAGE",
            help="a name, a pattern or an id (default: the images that flavors name, else all public images)",
        )

    def read(self, parsed_args: argparse.Namespace) -> ImageCloud:
        """Read and check the images."""
        from gpustack.facts.store import load_snapshot
        from gpustack.image.check import check, unmatched
        from gpustack.image.cloud import ImageCloud
        from gpustack.image.needs import needs_of
        from gpustack.image.select import pairs
        from gpustack.spec.load import load_spec

        spec = load_spec(parsed_args.spec)
        hosts = load_snapshot(parsed_args.snapshot) if parsed_args.snapshot else ()
        flavors = needs_of(spec, release_of(parsed_args.release, spec), hosts)
        cloud = ImageCloud(self.connection(parsed_args, timeout=CLOUD_TIMEOUT))
        paired, missing = pairs(cloud.images(), flavors, parsed_args.images)
        self._checked = check(paired)
        self._findings = [*unmatched(missing), *(entry for checked in self._checked for entry in checked.findings)]
        return cloud


class ImageCheckCommand(ImageCommand, Lister):
    """Check images for the GPU flavors of the spec. Changes nothing.

    Lists the images from Glance once and compares their properties and sizes with the flavors: those that name the
    image under `images`, else those without images whose guest (Windows or not) the image resembles. gpustack does not
    look into images. Properties that whoever builds an image may set: gpustack_driver, the version of the installed
    NVIDIA driver, and gpustack_modules_signed, true or false.
    """

    epilog = """\
gpustack image check gpustack.yaml; gpustack image check gpustack.yaml 'ubuntu-*' --snapshot hosts.json;
gpustack image check gpustack.yaml -f json --exit-code"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_exit_code(parser, "an image has a warning or an error")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        from gpustack.image import table

        self.read(parsed_args)
        if is_for_machines(parsed_args):
            return table.FIELDS, [table.described(checked) for checked in self._checked]
        return table.COLUMNS, [
            tuple(printable(cell, keep="") for cell in table.cells(checked)) for checked in self._checked
        ]

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings."""
        self.report_findings(self._findings)
        bad = any(entry.severity is not Severity.INFO for entry in self._findings)
        return CHANGES if parsed_args.exit_code and bad else 0

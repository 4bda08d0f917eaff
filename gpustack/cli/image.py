"""``gpustack image …``, and ``openstack gpu image …``: images for instances with GPUs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from gpustack.base.errors import UsageError
from gpustack.base.findings import errors
from gpustack.cli.change import ChangeCommand, show_operations
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code
from gpustack.cli.options import add_snapshot, option, release_of, snapshot_hosts
from gpustack.cli.output import Table, table
from gpustack.cloud.image import ImageCloud
from gpustack.offer.image.changes import changes
from gpustack.offer.image.check import COLUMNS, Checked, check, unmatched
from gpustack.offer.image.needs import needs_of, pairs
from gpustack.spec.load import load_spec


class ImageCommand(OpenStackCommand):
    """Base class: read the images, and check those for the flavors of the spec."""

    _checked: tuple[Checked, ...] = ()
    _missing: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self.add_images(parser)
        add_snapshot(parser, ", for their architectures")
        option(parser, "--release NAME", "check for this release of Nova (default: that of the spec)")

    def add_images(self, parser: argparse.ArgumentParser) -> None:
        """Add the images to the command line."""
        text = "a name, a pattern or an id (default: the images that flavors name, else all public images)"
        parser.add_argument("images", nargs="*", metavar="IMAGE", help=text)

    def read(self, parsed_args: argparse.Namespace) -> None:
        """Read and check the images."""
        hosts = snapshot_hosts(parsed_args, self.report)
        spec = load_spec(parsed_args.spec, hosts)
        flavors = needs_of(spec, release_of(parsed_args.release, spec), hosts)
        cloud = ImageCloud(self.connection(parsed_args))
        images = cloud.images(parsed_args.images or [name for needs in flavors for name in needs.images])
        paired, self._missing = pairs(images, flavors, parsed_args.images, cloud.project())
        self._checked = check(paired)


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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        self.read(parsed_args)
        of_images = (entry for checked in self._checked for entry in checked.findings)
        self._findings = [*unmatched(self._missing), *of_images]
        if not (self._missing or errors(self._findings)) and changes([checked.pair for checked in self._checked]):
            self.outcome = "changes"
        return table(parsed_args, COLUMNS, self._checked)


class ImageSetCommand(ChangeCommand, ImageCommand):
    """Set the image properties that follow from the spec. Shows the changes, and asks for confirmation.

    Sets hw_machine_type=q35 if the image has no machine type, os_type=windows for Windows, and
    img_hide_hypervisor_id=true if a model needs it and the flavor does not hide the hypervisor. Instances that exist
    are not affected. `gpustack undo` restores the former values. If an image was not changed, the exit code is 14.
    """

    epilog = """\
gpustack image set gpustack.yaml windows-11 ubuntu-24.04-gpu;
gpustack image set gpustack.yaml windows-11 --firmware uefi --yes"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        firmware = "also set hw_firmware_type, to the firmware for which the images were installed"
        option(parser, "--firmware", firmware, choices=("bios", "uefi"))
        self.add_change_options(parser)

    def add_images(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("images", nargs="+", metavar="IMAGE", help="a name, a pattern or an id")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.read(parsed_args)
        if self._missing:
            what = f"no image has the id, and no public or own image the name {' or '.join(self._missing)}"
            raise UsageError(what, remedy="openstack image list; name images of other projects by their ids")
        operations = changes([checked.pair for checked in self._checked], parsed_args.firmware)
        show_operations(self, operations, parsed_args.format)
        if not operations:
            self.report("nothing to change")
        elif not parsed_args.check:
            self.carry_out(operations, parsed_args, spec=parsed_args.spec)

"""``gpustack guest vendordata``: Nova's vendor data with the check of the guest's GPUs."""

import argparse
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack.base.operations import counted
from gpustack.cli.common import Command
from gpustack.cli.options import option
from gpustack.offer.guest import check, vendordata
from gpustack.spec.load import load_spec


class GuestVendordataCommand(Command):
    """Render Nova's vendor data: a script that reports the GPUs of every guest on its console.

    The file is for StaticJSON, Nova's default provider: `vendordata_jsonfile_path` in the group `api`. cloud-init runs
    the script at the first boot of each instance. Without a GPU it does nothing, unless the flavor promises one. It
    changes nothing in the guest. Flavors with `access` are omitted, since every project can read the file. `gpustack
    guest check --console` reads the report. Other vendor data in FILE of --merge, such as NTP servers, is kept.
    """

    epilog = """\
gpustack guest vendordata gpustack.yaml --out vendordata.json;
gpustack guest vendordata gpustack.yaml --merge /etc/nova/vendordata.json --out vendordata.json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        option(parser, "--out FILE", "write to FILE (default: standard output)")
        option(parser, "--merge FILE", "keep the vendor data of this file")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = load_spec(parsed_args.spec)
        promised = check.promises(spec, public=True)
        if omitted := len(check.promises(spec)) - len(promised):
            self.report(f"{counted(omitted, 'flavor')} of single projects omitted: every instance can read vendor data")
        text = vendordata.render(promised, vendordata.read(parsed_args.merge) if parsed_args.merge else None)
        if parsed_args.out is None:
            print(text, end="", file=self.app.stdout)
            return
        write_atomic(parsed_args.out, text, mode=0o644)
        self.report(f"{parsed_args.out} written: {len(text)} bytes")

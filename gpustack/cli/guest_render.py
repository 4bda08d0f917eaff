"""``gpustack guest render|vendordata``: the GPUs of flavors for Kubernetes tools, and the check of guests for Nova."""

import argparse
from pathlib import Path

from gpustack.base.errors import PlanError
from gpustack.base.files import write_atomic
from gpustack.base.findings import errors
from gpustack.base.operations import counted
from gpustack.cli.common import Command, add_exit_code, add_format
from gpustack.cli.guest import chosen
from gpustack.cli.options import add_snapshot, option, positive, snapshot_hosts
from gpustack.offer.guest import check, vendordata
from gpustack.offer.guest.kubernetes.documents import Rendering
from gpustack.offer.guest.kubernetes.render import FORMS, render
from gpustack.spec.load import load_spec


class GuestRenderCommand(Command):
    """Render the nodes of a Kubernetes cluster for the flavors of a spec: GPUs, labels, taints, drivers.

    Prints YAML and deploys nothing. Flavors that can't be rendered are left out and reported. With --as capo, the
    output is a template of `clusterctl generate yaml`.
    """

    epilog = """\
gpustack guest render gpustack.yaml --as capo --flavor g1.k4200.1 | clusterctl generate yaml | kubectl apply -f -;
gpustack guest render gpustack.yaml --as nodefeaturerule | kubectl apply -f -"""

    _rendering: Rendering

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_exit_code(parser)
        parser.add_argument(
            "--as",
            dest="form",
            choices=FORMS,
            required=True,
            help="capo: node groups with the annotations of the autoscaler; capi-helm: values of the chart"
            " openstack-cluster; nodefeaturerule: labels by PCI id;"
            " operator-values: the driver for NVIDIA GPU Operator; kubeadm: scheduler, labels and taints",
        )
        option(
            parser,
            "--flavor NAME…",
            "only this flavor, by its name in the spec or in the cloud; can be repeated (default: all)",
        )
        add_snapshot(parser, ", for sizes `auto`")
        option(
            parser,
            "--max-nodes N",
            "the largest number of nodes of a group (default: %(default)s)",
            type=positive,
            default=1,
        )
        add_format(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the documents."""
        hosts = snapshot_hosts(parsed_args, self.report)
        spec = load_spec(parsed_args.spec, hosts)
        flavors = list(chosen(spec, parsed_args.flavor))
        self._rendering = render(spec, parsed_args.form, flavors=flavors, hosts=hosts, max_nodes=parsed_args.max_nodes)
        if parsed_args.format == "text":
            print(self._rendering.text, end="", file=self.app.stdout)
        else:
            self.show_data(self._rendering.to_dict(), parsed_args.format)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings; an error among them means that the output is incomplete."""
        self.report_findings(self._rendering.findings)
        if omitted := {entry.place for entry in errors(self._rendering.findings)}:
            raise PlanError(f"incomplete for {counted(len(omitted), 'flavor')}", remedy="see the findings above")


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

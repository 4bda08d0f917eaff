"""``gpustack cleanup explain``: all records of one GPU or one instance, on one screen."""

import argparse
from dataclasses import asdict

from gpustack.base.text import printable
from gpustack.cli import cleanup_options
from gpustack.cli.cleanup_hosts import add_hypervisors
from gpustack.cli.cleanup_options import add_cloud, add_databases, add_judgement, cloud_of, selection_of, sources_of
from gpustack.cli.common import Command, add_format, ssh_options
from gpustack.cli.options import option, pci_address
from gpustack.repair.explain import Subject, explain
from gpustack.repair.hypervisor import Hypervisors


class CleanupExplainCommand(Command):
    """Show all records of one GPU or instance: Nova's tables, Placement, the hypervisor. Changes nothing.

    Start here: the records are shown in any state, without a verdict.
    """

    epilog = """\
gpustack cleanup explain gpu01 0000:81:00.0 --os-cloud admin;
gpustack cleanup explain 5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d --sudo"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("subject", metavar="HOST|INSTANCE", help="host of the GPU, or uuid of the instance")
        about = "address of the GPU, such as 0000:81:00.0"
        parser.add_argument("address", nargs="?", type=pci_address, metavar="ADDRESS", help=about)
        add_databases(parser)
        add_judgement(parser)
        add_cloud(parser)
        add_format(parser)
        option(add_hypervisors(parser), "--no-hypervisor", "don't ask the host")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.address is None:
            remedy = "gpustack cleanup explain HOST ADDRESS, or gpustack cleanup explain INSTANCE"
            subject = Subject(instances={cleanup_options.instance_uuid(parsed_args.subject, remedy)})
        else:
            subject = Subject(host=parsed_args.subject, address=parsed_args.address)
        sources = sources_of(self, parsed_args)
        selection = selection_of(parsed_args, sources)
        with Hypervisors(enabled=not parsed_args.no_hypervisor, ssh=ssh_options(parsed_args)) as hypervisors:
            sections = explain(sources, selection, subject, hypervisors.ask, cloud_of(parsed_args))
            if parsed_args.format != "text":
                self.show_data([asdict(section) for section in sections], parsed_args.format)
            else:
                for section in sections:
                    text = self.completed("\n  ".join((section.title, *section.lines)))
                    print(printable(text, keep="\n"), file=self.app.stdout)

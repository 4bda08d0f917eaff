"""``gpustack why``: why an instance of a flavor finds no host."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import PartialError
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code, positive
from gpustack.cli.gpu import databases_of, scheduler_of
from gpustack.cli.options import option
from gpustack.cli.output import Table, table
from gpustack.cli.progress import counting

if TYPE_CHECKING:
    from gpustack.base.findings import Finding
    from gpustack.operate.capacity.model import Capacity
    from gpustack.operate.why.read import FlavorAnswer


class WhyFlavorCommand(OpenStackCommand, Lister):
    """Show how many instances of a flavor fit, and the first step at which Nova refuses each other host.

    Steps have Nova's names: the API, its filters of requests, Placement with the resource class, each filter of the
    scheduler, and the claim of nova-compute. The flavor is that of the cloud. With --host, every step of one host is
    listed. Quotas, server groups and third-party filters are not evaluated.

    Exit codes: 0 the question was answered. With --exit-code: 3 too few instances fit, 23 a source is missing.
    """

    epilog = """\
gpustack why flavor g1.k4200.8; gpustack why flavor g1.k4200.8 --host gpu07 --config-file /etc/nova/nova.conf;
gpustack why flavor g1.k4200.8 --project research --image ubuntu --count 4 --exit-code -f json"""

    _answer: FlavorAnswer

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="NAME", help="the flavor, by name or id")
        option(parser, "--host HOST", "list every step of this host")
        option(parser, "--project P", "the project of the instances, by name or id")
        option(parser, "--image I", "the image, by name or id: its properties count too")
        option(parser, "--availability-zone Z", "the zone of the instances (default: any)", default="")
        option(parser, "--count N", "the wanted instances (default: %(default)s)", type=positive, default=1)
        group = parser.add_argument_group("other sources")
        option(
            group,
            "--spec SPEC",
            "the spec, for the models behind aliases (default: %(default)s)",
            default=Path("gpustack.yaml"),
        )
        option(group, "--snapshot FILE", "read the GPUs of hosts from a file of scan --save")
        option(
            group,
            "--config-file FILE…",
            "nova.conf of nova-api and nova-scheduler, or its directory, for free devices, NUMA nodes and filters;"
            " can be repeated",
        )
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        from gpustack.operate.why.flavor import STEP_COLUMNS, columns
        from gpustack.operate.why.read import FlavorQuestion, answer

        question = FlavorQuestion(
            name=parsed_args.name,
            project=parsed_args.project or "",
            image=parsed_args.image or "",
            zone=parsed_args.availability_zone,
            host=parsed_args.host or "",
        )
        with counting(self, "asking Nova and Placement") as progress:
            self._answer = answer(
                self.connection(parsed_args),
                question,
                parsed_args.spec,
                parsed_args.snapshot,
                databases_of(parsed_args),
                scheduler_of(parsed_args),
                progress,
            )
        self.report(_number(self._answer.capacity))
        if self._answer.steps is not None:
            return table(parsed_args, STEP_COLUMNS, self._answer.steps)
        return table(parsed_args, columns(later=self.verbosity > 1), self._answer.causes)

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the doubts, the findings and what is missing."""
        from gpustack.operate.capacity.assess import findings

        found: Sequence[Finding] = [*self._answer.findings, *findings([self._answer.capacity])]
        self.report_findings(found)
        for gap in self._answer.gaps:
            self.report(f"partial: {gap}")
        if parsed_args.exit_code and self._answer.gaps:
            raise PartialError("the answer is partial", remedy="see the reasons above")
        self.to_do = self._answer.capacity.least < parsed_args.count
        return 0


def _number(capacity: Capacity) -> str:
    from gpustack.operate.capacity.table import fits

    hosts = sum(1 for host in capacity.hosts if host.fits)
    return f"{capacity.demand.flavor}: {fits(capacity)} more fit, on {hosts} hosts"

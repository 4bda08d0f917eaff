"""``gpustack capacity``: how many more instances of each flavor fit."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from gpustack.base.errors import UsageError
from gpustack.cli import capacity_simulation as simulation
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code, is_for_machines
from gpustack.cli.gpu import databases_of, scheduler_of
from gpustack.cli.options import add_snapshot, option, release_of, snapshot_hosts
from gpustack.cli.output import Table, table
from gpustack.cli.progress import counting
from gpustack.offer.flavor.desired import wanted
from gpustack.operate.capacity.assess import State, assess, findings, state
from gpustack.operate.capacity.flavors import demands
from gpustack.operate.capacity.model import Demand
from gpustack.operate.capacity.table import COLUMNS, HOST_COLUMNS
from gpustack.spec.load import load_spec


class CapacityCommand(OpenStackCommand, Lister):
    """Count how many more instances of each flavor fit, and name the reasons against more.

    Each flavor is counted as if no other were booted. A number that is not certain is shown with `at least` or
    `at most`, with the reason below. Without PCI in Placement, free GPUs come from the databases (--config-file) or
    from a snapshot. NUMA nodes with room are known from the databases only. If a source does not answer, the exit code
    is 23.

    With --simulate, it replays requests on the free GPUs, or with --empty on all GPUs, with the weights of Nova's
    scheduler, and compares settings of [filter_scheduler]: the requests that are refused, and the GPUs in fragments.
    """

    epilog = """\
gpustack capacity gpustack.yaml; gpustack capacity gpustack.yaml --hosts --flavor g1.k4200.8;
gpustack capacity gpustack.yaml --config-file /etc/nova/nova.conf -f json;
gpustack capacity gpustack.yaml --empty --simulate g1.k4200.1:50,g1.k4200.8:10 --load 0.7"""

    _gaps: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        option(parser, "--flavor NAME…", "count only this flavor of the spec; can be repeated")
        option(parser, "--hosts", "list each host of each flavor")
        option(
            parser,
            "--availability-zone ZONE",
            "count only hosts of this zone (default: default_schedule_zone of --config-file, else all)",
            default="",
        )
        option(parser, "--release NAME", "the flavors of this release of Nova (default: that of the spec)")
        group = parser.add_argument_group("other sources")
        add_snapshot(group, ", for sizes `auto` and the GPUs of hosts")
        option(
            group,
            "--config-file FILE…",
            "nova.conf of nova-api and nova-scheduler, or its directory: its cell databases have the free devices "
            "and NUMA nodes, and it shows the filters; can be repeated",
        )
        simulation.add_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        simulation.check_options(parsed_args)
        state, demands = self._read(parsed_args)
        if parsed_args.simulate:
            return simulation.simulated(parsed_args, state.hosts, demands)
        with counting(self, "asking Placement") as progress:
            counted = [assess(self.connection(parsed_args), state, demand, progress) for demand in demands]
        self._findings = [*self._findings, *findings(counted)]
        if parsed_args.hosts and not is_for_machines(parsed_args):
            return table(parsed_args, HOST_COLUMNS, [(entry.demand, host) for entry in counted for host in entry.hosts])
        return table(parsed_args, COLUMNS, counted)

    def _read(self, parsed_args: argparse.Namespace) -> tuple[State, list[Demand]]:
        """The hosts, and the flavors to count."""
        hosts = snapshot_hosts(parsed_args, self.report)
        spec = load_spec(parsed_args.spec, hosts)
        desired = wanted(spec, release=release_of(parsed_args.release, spec), hosts=hosts)
        self._findings = desired.findings
        names = parsed_args.flavor or [flavor.name for flavor in desired.flavors]
        by_name = {flavor.name: flavor for flavor in desired.flavors}
        for name in names:
            if name not in by_name:
                remedy = f"its flavors: {', '.join(by_name) or 'none'}"
                raise UsageError(f"the spec has no flavor {name!r}", remedy=remedy)
        cloud = self.connection(parsed_args)
        scheduler = scheduler_of(parsed_args)
        with counting(self, "reading instances") as progress:
            known = state(
                cloud,
                spec,
                facts=hosts,
                databases=databases_of(parsed_args),
                scheduler=scheduler,
                zone=parsed_args.availability_zone,
                empty=parsed_args.empty,
                progress=progress,
            )
        self._gaps = known.gaps
        chosen = [by_name[name] for name in dict.fromkeys(names)]
        found, differences = demands(spec, chosen, known.flavors, scheduler)
        self._findings = [*self._findings, *differences]
        return known, found

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings, and what is missing."""
        super().after(parsed_args)
        self.report_partial(self._gaps, "the numbers are")

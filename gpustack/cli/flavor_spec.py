"""``gpustack flavor plan`` and ``apply``: GPU flavors by spec."""

import argparse
from collections.abc import Sequence

from gpustack.base.errors import FlavorError
from gpustack.base.operations import Operation
from gpustack.cli.options import add_snapshot, option
from gpustack.cli.sync import ApplyCommand, PlanCommand
from gpustack.offer.cloud_plan.plan import CloudPlan


class FlavorPlanCommand(PlanCommand):
    """Show the changes that sync flavors with the spec. Changes nothing."""

    group = "flavors"

    epilog = """\
gpustack flavor plan gpustack.yaml --snapshot hosts.json;
gpustack flavor plan gpustack.yaml --exit-code -f json"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_snapshot(parser, ", for sizes `auto`, and to report flavors that fit no host")
        option(parser, "--release NAME", "render for this release of Nova (default: that of the spec)")
        option(parser, "--prune", "delete flavors of an earlier spec that no instance uses")
        option(
            parser,
            "--replace NAME…",
            "delete this flavor and create it with its new sizes, if no instance uses it; can be repeated",
        )
        option(parser, "--adopt", "adopt existing flavors of the same names")
        option(parser, "--check-access", "read the projects of every private flavor, one request each")

    def operations(self, plan: CloudPlan) -> Sequence[Operation]:
        return plan.flavors.operations if plan.flavors else ()

    def data(self, plan: CloudPlan) -> dict[str, object]:
        return {"unchanged": list(plan.flavors.unchanged) if plan.flavors else []}


class FlavorApplyCommand(ApplyCommand, FlavorPlanCommand):
    """Sync flavors with the spec, after showing the changes.

    Changes only flavors with gpustack's mark. An incomplete flavor is deleted again. After an interruption, run the
    same command again to complete the changes.
    """

    incomplete = FlavorError
    at_once = 8
    epilog = """\
gpustack flavor apply gpustack.yaml --snapshot hosts.json;
gpustack flavor apply gpustack.yaml --yes --prune"""

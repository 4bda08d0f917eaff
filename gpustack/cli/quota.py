"""``gpustack quota plan`` and ``apply``: limits of GPUs by project, in Keystone."""

import argparse

from gpustack.base.errors import QuotaError
from gpustack.cli.options import add_snapshot, option
from gpustack.cli.sync import ApplyCommand, PlanCommand
from gpustack.nova_options.scheduler import wanted_stage
from gpustack.offer.cloud_plan.plan import CloudPlan

_EFFECTS = {"enforced": "enforced", "none": "report only"}


class QuotaPlanCommand(PlanCommand):
    """Show the changes that sync the limits in Keystone with the spec, and what Nova enforces. Changes nothing.

    Nova enforces these limits with [quota] driver = nova.quota.UnifiedLimitsDriver.
    """

    epilog = """\
gpustack quota plan gpustack.yaml;
gpustack quota plan gpustack.yaml --snapshot hosts.json --exit-code -f json"""

    group = "quotas"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_snapshot(parser, ", to compare limits and hosts with the GPUs")
        option(parser, "--release NAME", "show what this release of Nova enforces (default: that of the spec)")
        option(parser, "--prune", "delete limits of an earlier spec")

    def data(self, plan: CloudPlan) -> dict[str, object]:
        return {"unchanged": plan.unchanged["quotas"], "enforcement": [check.to_dict() for check in plan.checks]}

    def show_summary(self, plan: CloudPlan) -> None:
        super().show_summary(plan)
        if plan.checks:
            self.show(f"Nova {plan.release} with unified limits, PCI in Placement: {wanted_stage(self._spec)}")
        for check in plan.checks:
            self.show(f"  {check.operation:<9} {_EFFECTS[check.effect]}: {check.text}")


class QuotaApplyCommand(ApplyCommand, QuotaPlanCommand):
    """Sync the limits in Keystone with the spec, after showing the changes.

    After an interruption, run the same command again to complete the changes. An earlier spec reverts them.
    """

    incomplete = QuotaError
    epilog = """\
gpustack quota apply gpustack.yaml;
gpustack quota apply gpustack.yaml --yes --prune"""

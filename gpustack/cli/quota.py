"""``gpustack quota plan`` and ``apply``: limits of GPUs by project, in Keystone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import QuotaError, SpecError
from gpustack.cli.common import release_of
from gpustack.cli.sync import ApplyCommand, PlanCommand

if TYPE_CHECKING:
    from gpustack.base.findings import Finding
    from gpustack.changes.change import CloudChange
    from gpustack.nova_options.releases import Release
    from gpustack.offer.quota.compare import QuotaPlan
    from gpustack.offer.quota.enforcement import Check
    from gpustack.spec.model import Placement, Spec

_EFFECTS = {"enforced": "enforced", "none": "report only"}


class QuotaPlanCommand(PlanCommand):
    """Show the changes that sync the limits in Keystone with the spec, and what Nova enforces. Changes nothing.

    Nova enforces these limits with [quota] driver = nova.quota.UnifiedLimitsDriver.
    """

    epilog = """\
gpustack quota plan gpustack.yaml;
gpustack quota plan gpustack.yaml --snapshot hosts.json --exit-code -f json"""

    _checks: tuple[Check, ...]
    _release: Release
    _placement: Placement

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--snapshot",
            type=Path,
            metavar="FILE",
            help="read the facts of hosts from a file of scan --save, to compare limits and hosts with the GPUs",
        )
        parser.add_argument(
            "--release", metavar="NAME", help="show what this release of Nova enforces (default: that of the spec)"
        )
        parser.add_argument("--prune", action="store_true", help="delete limits of an earlier spec")

    def planned(self, parsed_args: argparse.Namespace) -> QuotaPlan:
        from dataclasses import replace

        from gpustack.cloud.limits import LimitsCloud
        from gpustack.hosts.facts.store import load_snapshot
        from gpustack.offer.quota.apply import plan
        from gpustack.offer.quota.desired import wanted
        from gpustack.offer.quota.enforcement import enforced
        from gpustack.offer.quota.markers import differing, gpus_of, sums
        from gpustack.spec.load import load_spec
        from gpustack.spec.markers import markers

        spec = load_spec(parsed_args.spec)
        if spec.quotas is None and not parsed_args.prune:
            remedy = "add quotas: {default: {MODEL: 0}}; to delete limits of an earlier spec, use --prune"
            raise SpecError("the spec has no section `quotas`", where=str(parsed_args.spec), remedy=remedy)
        self._release = release_of(parsed_args.release, spec)
        self._placement = spec.nova.placement if spec.nova else "off"
        self._checks = enforced(spec.quotas.count, self._release, self._placement) if spec.quotas else ()
        cloud = LimitsCloud(self.connection(parsed_args))
        limits = wanted(spec)
        gpus = gpus_of(spec, load_snapshot(parsed_args.snapshot)) if parsed_args.snapshot else None
        totals = None if gpus is None else sums(gpus, limits)
        quota_plan = plan(cloud, limits, prune=parsed_args.prune, totals=totals)
        found = [*quota_plan.findings, *self._others(spec, parsed_args)]
        if gpus and markers(spec):
            found += differing(spec, gpus, cloud.inventories(gpus))
        return replace(quota_plan, findings=tuple(found))

    def _others(self, spec: Spec, parsed_args: argparse.Namespace) -> list[Finding]:
        """Findings about the release, and about flavors."""
        from gpustack.offer.flavor.flavors import present_flavors
        from gpustack.offer.quota.enforcement import gaps
        from gpustack.offer.quota.markers import uncounted
        from gpustack.spec.markers import markers

        found = list(gaps(spec.quotas.count, self._release, self._placement)) if spec.quotas else []
        if names := markers(spec):
            found += uncounted(present_flavors(self.connection(parsed_args)).flavors(), names)
        return found

    def to_dict(self, plan: QuotaPlan) -> dict[str, object]:
        return {**plan.to_dict(), "enforcement": [check.to_dict() for check in self._checks]}

    def show_summary(self, plan: QuotaPlan) -> None:
        self.show_counts(plan.unchanged)
        if self._checks:
            self.show(f"Nova {self._release}, PCI in Placement: {self._placement}")
        for check in self._checks:
            self.show(f"  {check.operation:<9} {_EFFECTS[check.effect]}: {check.text}")


class QuotaApplyCommand(ApplyCommand, QuotaPlanCommand):
    """Sync the limits in Keystone with the spec, after showing the changes.

    After an interruption, run the same command again to complete the changes. An earlier spec reverts them.
    """

    incomplete = QuotaError
    epilog = """\
gpustack quota apply gpustack.yaml;
gpustack quota apply gpustack.yaml --yes --prune"""

    def changes(self, parsed_args: argparse.Namespace, plan: QuotaPlan) -> Sequence[CloudChange]:
        from gpustack.offer.quota.changes import changes

        return changes(plan.operations)

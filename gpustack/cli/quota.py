"""``gpustack quota plan`` and ``apply``: limits of GPUs by project, in Keystone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import CHANGES, PlanError, SpecError
from gpustack.base.text import printable
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import add_exit_code, add_format, confirm, release_of

if TYPE_CHECKING:
    from gpustack.base.findings import Finding
    from gpustack.nova_options.releases import Release
    from gpustack.offer.quota.cloud import LimitsCloud
    from gpustack.offer.quota.compare import QuotaPlan
    from gpustack.offer.quota.enforcement import Check
    from gpustack.offer.quota.operations import LimitOperation
    from gpustack.spec.model import Placement, Spec

_EFFECTS = {"enforced": "enforced", "none": "report only"}


class QuotaPlanCommand(OpenStackCommand):
    """Show the changes that sync the limits in Keystone with the spec, and what Nova enforces. Changes nothing.

    Nova enforces these limits with [quota] driver = nova.quota.UnifiedLimitsDriver.
    """

    epilog = """\
gpustack quota plan gpustack.yaml;
gpustack quota plan gpustack.yaml --snapshot hosts.json --exit-code -f json"""

    _plan: QuotaPlan
    _checks: tuple[Check, ...]
    _release: Release
    _placement: Placement

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
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
        add_format(parser)
        self.add_more(parser)
        return parser

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of a subclass."""
        add_exit_code(parser, "the plan contains changes")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print the plan."""
        self._planned(parsed_args)
        self._print(parsed_args)
        return CHANGES if parsed_args.exit_code and self._plan.operations else 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings; an error among them blocks the plan."""
        self._tell_findings()
        return 0

    def _planned(self, parsed_args: argparse.Namespace) -> LimitsCloud:
        from dataclasses import replace

        from gpustack.hosts.facts.store import load_snapshot
        from gpustack.offer.quota.apply import plan
        from gpustack.offer.quota.cloud import LimitsCloud
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
        self._plan = replace(quota_plan, findings=tuple(found))
        return cloud

    def _others(self, spec: Spec, parsed_args: argparse.Namespace) -> list[Finding]:
        """Findings about the release, and about flavors."""
        from gpustack.offer.flavor.cloud import FlavorCloud
        from gpustack.offer.quota.enforcement import gaps
        from gpustack.offer.quota.markers import uncounted
        from gpustack.spec.markers import markers

        found = list(gaps(spec.quotas.count, self._release, self._placement)) if spec.quotas else []
        if names := markers(spec):
            found += uncounted(FlavorCloud(self.connection(parsed_args)).flavors(), names)
        return found

    def _print(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.format != "text":
            checks = [check.to_dict() for check in self._checks]
            self.show_data({**self._plan.to_dict(), "enforcement": checks}, parsed_args.format)
            return
        for operation in self._plan.operations:
            self.show(printable(operation.describe()))
        counts = dict.fromkeys(("create", "change", "delete"), 0)
        for operation in self._plan.operations:
            counts[operation.kind.removesuffix("_limit")] += 1
        changes = ", ".join(f"{count} to {verb}" for verb, count in counts.items())
        self.show(f"{changes}, {self._plan.unchanged} unchanged")
        if self._checks:
            self.show(f"Nova {self._release}, PCI in Placement: {self._placement}")
        for check in self._checks:
            self.show(f"  {check.operation:<9} {_EFFECTS[check.effect]}: {check.text}")
        self.app.stdout.flush()

    def _tell_findings(self) -> None:
        from gpustack.base.findings import errors

        self.report_findings(self._plan.findings)
        stopped = errors(self._plan.findings)
        if stopped:
            count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
            raise PlanError(f"the plan is blocked by {count}; nothing was changed", remedy="see the findings above")


class QuotaApplyCommand(QuotaPlanCommand):
    """Sync the limits in Keystone with the spec, after showing the changes.

    After an interruption, run the same command again to complete the changes. An earlier spec reverts them.
    """

    epilog = """\
gpustack quota apply gpustack.yaml;
gpustack quota apply gpustack.yaml --yes --prune"""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, and apply it."""
        from gpustack.offer.quota.apply import apply

        cloud = self._planned(parsed_args)
        self._print(parsed_args)
        self._tell_findings()
        operations = self._plan.operations
        if not operations:
            return 0
        if not parsed_args.yes:
            confirm(self, f"Carry out {len(operations)} operation{'s'[: len(operations) > 1]}?")
        apply(cloud, operations, self._tell_one)
        if self.verbosity:
            self.report("done")
        return 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report nothing: the findings were printed before the first change."""
        return 0

    def _tell_one(self, operation: LimitOperation) -> None:
        if self.verbosity > 1:
            self.report(f"done: {operation.describe()}")

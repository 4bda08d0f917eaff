"""``gpustack flavor plan`` and ``apply``: GPU flavors by spec."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import FlavorError
from gpustack.cli.common import positive, release_of
from gpustack.cli.flavor import InCloud
from gpustack.cli.sync import ApplyCommand, PlanCommand

if TYPE_CHECKING:
    from gpustack.changes.change import CloudChange
    from gpustack.offer.flavor.compare import FlavorPlan


class FlavorPlanCommand(PlanCommand, InCloud):
    """Show the changes that sync flavors with the spec. Changes nothing."""

    epilog = """\
gpustack flavor plan gpustack.yaml --snapshot hosts.json;
gpustack flavor plan gpustack.yaml --exit-code -f json"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--snapshot",
            type=Path,
            metavar="FILE",
            help="read the facts of hosts from a file of scan --save, for sizes `auto`, and to report flavors that "
            "fit no host",
        )
        parser.add_argument(
            "--release", metavar="NAME", help="render for this release of Nova (default: that of the spec)"
        )
        parser.add_argument(
            "--prune", action="store_true", help="delete flavors of an earlier spec that no instance uses"
        )
        parser.add_argument(
            "--replace",
            action="append",
            default=[],
            metavar="NAME",
            help="delete this flavor and create it with its new sizes, if no instance uses it; can be repeated",
        )
        parser.add_argument("--adopt", action="store_true", help="adopt existing flavors of the same names")
        parser.add_argument(
            "--check-access", action="store_true", help="read the projects of every private flavor, one request each"
        )

    def planned(self, parsed_args: argparse.Namespace) -> FlavorPlan:
        import dataclasses

        from gpustack.hosts.facts.store import load_snapshot
        from gpustack.offer.flavor.apply import plan
        from gpustack.offer.flavor.compare import FlavorChoices
        from gpustack.offer.flavor.desired import wanted
        from gpustack.offer.guest.requirements import conflicts
        from gpustack.offer.tenancy.flavors import guarded
        from gpustack.spec.load import load_spec

        spec = load_spec(parsed_args.spec)
        hosts = load_snapshot(parsed_args.snapshot) if parsed_args.snapshot else ()
        desired = wanted(spec, release=release_of(parsed_args.release, spec), hosts=hosts)
        choices = FlavorChoices(
            adopt=parsed_args.adopt,
            replace=frozenset(parsed_args.replace),
            prune=parsed_args.prune,
            check_access=parsed_args.check_access,
        )
        flavor_plan = plan(self.cloud(parsed_args), desired.flavors, choices)
        order = guarded(lambda: self.connection(parsed_args), spec.tenancy, flavor_plan.operations)
        findings = (*desired.findings, *conflicts(spec), *flavor_plan.findings, *order)
        return dataclasses.replace(flavor_plan, findings=findings)

    def show_summary(self, plan: FlavorPlan) -> None:
        self.show_counts(len(plan.unchanged))


class FlavorApplyCommand(ApplyCommand, FlavorPlanCommand):
    """Sync flavors with the spec, after showing the changes.

    Changes only flavors with gpustack's mark. An incomplete flavor is deleted again. After an interruption, run the
    same command again to complete the changes.
    """

    incomplete = FlavorError
    epilog = """\
gpustack flavor apply gpustack.yaml --snapshot hosts.json;
gpustack flavor apply gpustack.yaml --yes --prune"""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        super().add_more(parser)
        parser.add_argument(
            "--jobs",
            type=positive,
            default=8,
            metavar="N",
            help="change N flavors at the same time (default: %(default)s)",
        )

    def changes(self, parsed_args: argparse.Namespace, plan: FlavorPlan) -> Sequence[CloudChange]:
        from gpustack.offer.flavor.apply import with_access
        from gpustack.offer.flavor.changes import changes

        self.jobs = parsed_args.jobs
        return changes(with_access(self.cloud(parsed_args), plan.operations))

"""``gpustack tenancy plan``, ``apply`` and ``show``: which instances the GPU hosts accept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpustack.base.text import printable
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, is_for_machines
from gpustack.cli.sync import ApplyCommand, PlanCommand

if TYPE_CHECKING:
    from gpustack.offer.cloud_plan.plan import CloudPlan


class TenancyPlanCommand(PlanCommand):
    """Show the changes that sync aggregates, and the trait of the GPU hosts, with the spec. Changes nothing.

    nova-scheduler reads the aggregates with the options of `gpustack nova render`. Instances that a host no longer
    accepts stay on it and are listed.
    """

    epilog = """\
gpustack tenancy plan gpustack.yaml;
gpustack tenancy plan gpustack.yaml --exit-code -f json"""

    group = "tenancy"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--prune", action="store_true", help="remove the aggregates and the trait of an earlier spec"
        )

    def data(self, plan: CloudPlan) -> dict[str, object]:
        superfluous = list(plan.tenancy.superfluous) if plan.tenancy else []
        return {"superfluous": superfluous, "access": list(plan.access)}

    def show_summary(self, plan: CloudPlan) -> None:
        count = len(plan.operations)
        self.show(f"{count} operation{'s'[: count != 1]}" if count else "no changes")
        if plan.access:
            self.show("who may boot on a host, before → after:")
        for line in plan.access:
            self.show(f"  {printable(line)}")
        if plan.tenancy and plan.tenancy.superfluous:
            self.show(f"of an earlier spec (remove with --prune): {printable(', '.join(plan.tenancy.superfluous))}")


class TenancyApplyCommand(ApplyCommand, TenancyPlanCommand):
    """Sync aggregates, and the trait of the GPU hosts, with the spec, after showing the changes.

    Changes only aggregates that gpustack created. Isolates hosts only after all flavors of the spec require the trait
    (`gpustack flavor apply`). After an interruption, run the same command again. An earlier spec reverts the changes.
    """

    epilog = """\
gpustack tenancy apply gpustack.yaml;
gpustack tenancy apply gpustack.yaml --yes --prune"""


class TenancyShowCommand(OpenStackCommand, Lister):
    """List the hosts in aggregates of gpustack, with the projects that they accept.

    Isolated hosts refuse instances whose flavor does not require the trait; hosts of the spec must have it.
    """

    epilog = "gpustack tenancy show -f json"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """One row for each host and aggregate."""
        from gpustack.offer.tenancy.cloud import present
        from gpustack.offer.tenancy.model import reserved
        from gpustack.spec.tenancy import DEFAULT_TRAIT

        raw = is_for_machines(parsed_args)
        rows: list[tuple[Any, ...]] = []
        for entry in reserved(present(self.connection(parsed_args), DEFAULT_TRAIT)):
            projects = list(entry.projects) if raw else ", ".join(entry.projects) or "all"
            flags = [flag if raw else "yes" if flag else "no" for flag in (entry.isolated, entry.bears_trait)]
            rows.append((entry.host, entry.aggregate, projects, *flags))
        return ("Host", "Aggregate", "Projects", "Isolated", "Trait"), rows

"""``gpustack tenancy plan``, ``apply`` and ``show``: which instances the GPU hosts accept."""

import argparse

from gpustack.base.columns import Column
from gpustack.base.text import counted, listed, printable
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister
from gpustack.cli.options import option
from gpustack.cli.output import Table, table
from gpustack.cli.sync import ApplyCommand, PlanCommand
from gpustack.cloud import identity
from gpustack.offer.cloud_plan.plan import CloudPlan
from gpustack.offer.tenancy.cloud import present
from gpustack.offer.tenancy.model import ReservedHost, reserved
from gpustack.spec.tenancy import DEFAULT_TRAIT


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
        option(parser, "--prune", "remove the aggregates and the trait of an earlier spec")

    def data(self, plan: CloudPlan) -> dict[str, object]:
        superfluous = list(plan.tenancy.superfluous) if plan.tenancy else []
        return {"superfluous": superfluous, "access": list(plan.access)}

    def show_summary(self, plan: CloudPlan) -> None:
        self.show(counted(len(plan.operations), "operation") if plan.operations else "no changes")
        if plan.access:
            self.show("who may boot on a host, before → after:")
        for line in plan.access:
            self.show(f"  {printable(line, keep='')}")
        if plan.tenancy and plan.tenancy.superfluous:
            self.show(f"of an earlier spec (remove with --prune): {listed(plan.tenancy.superfluous, 99)}")


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

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """One row for each host and aggregate."""
        connection = self.connection(parsed_args)
        entries = list(reserved(present(connection, DEFAULT_TRAIT)))
        ids = {project for entry in entries for project in entry.projects}
        name = identity.distinct(identity.names(connection, "projects", ids).names)
        columns: tuple[Column[ReservedHost], ...] = (
            Column("Host", lambda entry: entry.host, "Host"),
            Column("Aggregate", lambda entry: entry.aggregate, "Aggregate"),
            Column(
                "Projects", lambda e: list(e.projects), "Projects", lambda e: ", ".join(map(name, e.projects)) or "all"
            ),
            Column("Isolated", lambda entry: entry.isolated, "Isolated"),
            Column("Trait", lambda entry: entry.bears_trait, "Trait"),
        )
        return table(parsed_args, columns, entries)

"""``gpustack tenancy plan``, ``apply`` and ``show``: which instances the GPU hosts accept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CHANGES, PlanError, SpecError
from gpustack.base.text import printable
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code, add_format, confirm, is_for_machines

if TYPE_CHECKING:
    from openstack.connection import Connection

    from gpustack.offer.tenancy.compare import TenancyPlan
    from gpustack.offer.tenancy.model import Present
    from gpustack.offer.tenancy.operations import TenancyOperation


class TenancyPlanCommand(OpenStackCommand):
    """Show the changes that sync aggregates, and the trait of the GPU hosts, with the spec. Changes nothing.

    nova-scheduler reads the aggregates with the options of `gpustack nova render`. Instances that a host no longer
    accepts stay on it and are listed.
    """

    epilog = """\
gpustack tenancy plan gpustack.yaml;
gpustack tenancy plan gpustack.yaml --exit-code -f json"""

    _plan: TenancyPlan
    _present: Present

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        parser.add_argument(
            "--prune", action="store_true", help="remove the aggregates and the trait of an earlier spec"
        )
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

    def _planned(self, parsed_args: argparse.Namespace) -> Connection:
        from gpustack.offer.tenancy.cloud import present, projects
        from gpustack.offer.tenancy.compare import compare
        from gpustack.offer.tenancy.desired import wanted
        from gpustack.spec.load import load_spec
        from gpustack.spec.tenancy import DEFAULT_TRAIT

        spec = load_spec(parsed_args.spec)
        if spec.tenancy is None and not parsed_args.prune:
            remedy = "add tenancy: {aggregates: {gpu: {}}}; to remove the aggregates of an earlier spec, use --prune"
            raise SpecError("the spec has no section `tenancy`", where=str(parsed_args.spec), remedy=remedy)
        connection = self.connection(parsed_args)
        ids = projects(connection, spec.tenancy)
        self._present = present(connection, spec.tenancy.trait if spec.tenancy else DEFAULT_TRAIT)
        desired = wanted(spec, self._present.nodes, ids)
        self._plan = compare(desired, self._present, prune=parsed_args.prune)
        return connection

    def _print(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.format != "text":
            self.show_data(self._plan.to_dict(), parsed_args.format)
            return
        for operation in self._plan.operations:
            self.show(printable(operation.describe()))
            for line in operation.details():
                self.show(f"    {printable(line)}", changes=True)
        count = len(self._plan.operations)
        self.show(f"{count} operation{'s'[: count != 1]}" if count else "no changes")
        if self._plan.superfluous:
            self.show(f"of an earlier spec (remove with --prune): {printable(', '.join(self._plan.superfluous))}")
        self.app.stdout.flush()

    def _tell_findings(self) -> None:
        from gpustack.base.findings import errors

        self.report_findings(self._plan.findings)
        stopped = errors(self._plan.findings)
        if stopped:
            count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
            raise PlanError(f"the plan is blocked by {count}; nothing was changed", remedy="see the findings above")


class TenancyApplyCommand(TenancyPlanCommand):
    """Sync aggregates, and the trait of the GPU hosts, with the spec, after showing the changes.

    Changes only aggregates that gpustack created. Isolates hosts only after all flavors of the spec require the trait
    (`gpustack flavor apply`). After an interruption, run the same command again. An earlier spec reverts the changes.
    """

    epilog = """\
gpustack tenancy apply gpustack.yaml;
gpustack tenancy apply gpustack.yaml --yes --prune"""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, and apply it."""
        from gpustack.offer.tenancy.apply import apply
        from gpustack.offer.tenancy.cloud import TenancyCloud

        connection = self._planned(parsed_args)
        self._print(parsed_args)
        self._tell_findings()
        operations = self._plan.operations
        if not operations:
            return 0
        if not parsed_args.yes:
            confirm(self, f"Carry out {len(operations)} operation{'s'[: len(operations) > 1]}?")
        ids = {aggregate.name: aggregate.id for aggregate in self._present.aggregates}
        apply(TenancyCloud(connection), operations, ids, self._tell_one)
        if self.verbosity:
            self.report("done")
        return 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report nothing: the findings were printed before the first change."""
        return 0

    def _tell_one(self, operation: TenancyOperation) -> None:
        if self.verbosity > 1:
            self.report(f"done: {operation.describe()}")


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
        for entry in reserved(present(self.connection(parsed_args), DEFAULT_TRAIT, in_use=False)):
            projects = list(entry.projects) if raw else ", ".join(entry.projects) or "all"
            flags = [flag if raw else "yes" if flag else "no" for flag in (entry.isolated, entry.bears_trait)]
            rows.append((entry.host, entry.aggregate, projects, *flags))
        return ("Host", "Aggregate", "Projects", "Isolated", "Trait"), rows

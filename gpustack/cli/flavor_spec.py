"""``gpustack flavor plan`` and ``apply``: GPU flavors by spec."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import CHANGES, FlavorError, PlanError
from gpustack.base.text import printable
from gpustack.cli.common import add_exit_code, add_format, confirm, positive, release_of
from gpustack.cli.flavor import InCloud, tell_done

if TYPE_CHECKING:
    from gpustack.offer.flavor.apply import Failure
    from gpustack.offer.flavor.cloud import FlavorCloud
    from gpustack.offer.flavor.compare import FlavorPlan
    from gpustack.offer.flavor.operations import FlavorOperation


class FlavorPlanCommand(InCloud):
    """Show the changes that sync flavors with the spec. Changes nothing."""

    epilog = """\
gpustack flavor plan gpustack.yaml --snapshot hosts.json;
gpustack flavor plan gpustack.yaml --exit-code -f json"""

    _plan: FlavorPlan

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
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

    def _planned(self, parsed_args: argparse.Namespace) -> FlavorCloud:
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
        cloud = self.cloud(parsed_args)
        flavor_plan = plan(cloud, desired.flavors, choices)
        order = guarded(lambda: self.connection(parsed_args), spec.tenancy, flavor_plan.operations)
        findings = (*desired.findings, *conflicts(spec), *flavor_plan.findings, *order)
        self._plan = dataclasses.replace(flavor_plan, findings=findings)
        return cloud

    def _print(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.format != "text":
            self.show_data(self._plan.to_dict(), parsed_args.format)
            return
        for operation in self._plan.operations:
            self.show(printable(operation.describe()))
            for line in operation.details():
                self.show(f"    {printable(line)}", changes=True)
        counts = dict.fromkeys(("create", "change", "delete"), 0)
        for operation in self._plan.operations:
            counts[operation.kind.removesuffix("_flavor")] += 1
        changes = ", ".join(f"{count} to {verb}" for verb, count in counts.items())
        print(f"{changes}, {len(self._plan.unchanged)} unchanged", file=self.app.stdout)
        self.app.stdout.flush()

    def _tell_findings(self) -> None:
        from gpustack.base.findings import errors

        self.report_findings(self._plan.findings)
        stopped = errors(self._plan.findings)
        if stopped:
            count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
            raise PlanError(f"the plan is blocked by {count}; nothing was changed", remedy="see the findings above")


class FlavorApplyCommand(FlavorPlanCommand):
    """Sync flavors with the spec, after showing the changes.

    Changes only flavors with gpustack's mark. An incomplete flavor is deleted again. After an interruption, run the
    same command again to complete the changes.
    """

    epilog = """\
gpustack flavor apply gpustack.yaml --snapshot hosts.json;
gpustack flavor apply gpustack.yaml --yes --prune"""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
        parser.add_argument(
            "--jobs",
            type=positive,
            default=8,
            metavar="N",
            help="change N flavors at the same time (default: %(default)s)",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, and apply it."""
        from gpustack.offer.flavor.apply import apply

        cloud = self._planned(parsed_args)
        self._print(parsed_args)
        self._tell_findings()
        operations = self._plan.operations
        if not operations:
            return 0
        if not parsed_args.yes:
            confirm(self, f"Carry out {len(operations)} operation{'s'[: len(operations) > 1]}?")
        failures = apply(cloud, operations, jobs=parsed_args.jobs, done=self._tell_one)
        self._tell_failures(failures, len({operation.name for operation in operations}))
        return 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report nothing: the findings were printed before the first change."""
        return 0

    def _tell_one(self, operation: FlavorOperation) -> None:
        if self.verbosity > 1:
            tell_done(self, [operation])

    def _tell_failures(self, failures: Sequence[Failure], count: int) -> None:
        for failure in failures:
            self.report(f"{failure.name}: {failure.error}")
        if failures:
            raise FlavorError(
                f"{len(failures)} of {count} flavors failed", remedy="run the command again: it completes the rest"
            )
        if self.verbosity:
            self.report("done" if count > 1 else f"done: {self._plan.operations[-1].name}")

"""Common parts of the commands that sync a cloud with the spec: plan and apply of flavors, quotas and tenancy."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from gpustack.base.operations import Operation
from gpustack.changes.change import CloudChange
from gpustack.cli.change import ChangeCommand, refuse_errors, show_operations
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import add_exit_code, add_format
from gpustack.cli.options import option, positive, release_of, snapshot_hosts
from gpustack.offer.cloud_plan.plan import CloudChoices, CloudPlan, groups_of, plan
from gpustack.offer.flavor.changes import FlavorChange, with_projects
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec


class PlanCommand(OpenStackCommand):
    """Base class: show the plan, then its findings.

    :cvar group: the group of the spec's sections that the command syncs.
    """

    group: ClassVar[str]
    _plan: CloudPlan
    _spec: Spec

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self.add_options(parser)
        add_format(parser)
        add_exit_code(parser)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of both commands."""

    def groups(self, parsed_args: argparse.Namespace) -> frozenset[str] | None:
        """The groups to sync; None for all of the spec."""
        return frozenset({self.group})

    def planned(self, parsed_args: argparse.Namespace) -> CloudPlan:
        """Read the spec and the cloud, and plan."""
        options = vars(parsed_args)
        hosts = snapshot_hosts(parsed_args, self.report) if options.get("snapshot") else None
        spec = self._spec = load_spec(parsed_args.spec, hosts or ())
        flags = {name: options.get(name, False) for name in ("adopt", "prune", "check_access")}
        flavors = FlavorChoices(**flags, replace=frozenset(options.get("replace", ())))
        choices = CloudChoices(
            groups=self.groups(parsed_args),
            prune=parsed_args.prune,
            flavors=flavors,
            hosts=hosts,
            release=release_of(options.get("release"), spec if spec.nova or "release" in options else None),
        )
        groups = groups_of(spec, choices, str(parsed_args.spec))
        return plan(self.connection(parsed_args), spec, groups, choices)

    def operations(self, plan: CloudPlan) -> Sequence[Operation]:
        """The operations as the command shows them."""
        return plan.operations

    def data(self, plan: CloudPlan) -> dict[str, object]:
        """What the output for programs has beside operations and findings."""
        raise NotImplementedError

    def show_summary(self, plan: CloudPlan) -> None:
        """Print the lines below the operations: the number of changes, by their verb."""
        counts = Counter(operation.verb for operation in self.operations(plan))
        changes = ", ".join(f"{counts[verb]} to {verb}" for verb in ("create", "change", "delete"))
        self.show(f"{changes}, {sum(plan.unchanged.values())} unchanged")

    def complete(self, parsed_args: argparse.Namespace, changes: Sequence[CloudChange]) -> Sequence[CloudChange]:
        """The changes with what only a run needs."""
        deleting = any(change.object_kind == "flavor" and change.wanted is None for change in changes)
        return with_projects(FlavorChange.client(self.connection(parsed_args)), changes) if deleting else changes

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the plan."""
        self._plan = self.planned(parsed_args)
        self._print(parsed_args.format)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings; an error among them blocks the plan."""
        refuse_errors(self, self._plan.findings)

    def _print(self, form: str) -> None:
        plan = self._plan
        if form != "text":
            operations = [operation.to_dict() for operation in self.operations(plan)]
            findings = [finding.to_dict() for finding in plan.findings]
            self.show_data({"operations": operations, **self.data(plan), "findings": findings}, form)
        else:
            show_operations(self, self.operations(plan))
            self.show_summary(plan)
            self.app.stdout.flush()
        self.to_do = bool(plan.operations)


class ApplyCommand(ChangeCommand, PlanCommand):
    """Base class: show the plan and its findings, ask for confirmation, and carry the plan out.

    :cvar at_once: the default of ``--jobs``; 0 for a command that makes one change after the other.
    """

    at_once = 0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        self.add_change_options(parser)
        if self.at_once:
            text = "make N changes at the same time, if they do not need one another"
            option(parser, "--jobs N", text, type=positive, default=self.at_once)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Show the plan, ask for confirmation, and carry it out."""
        self.jobs = parsed_args.jobs if self.at_once else 1
        self._plan = self.planned(parsed_args)
        self._print(parsed_args.format)
        refuse_errors(self, self._plan.findings)
        if self.to_do and not parsed_args.check:
            self.carry_out(self.complete(parsed_args, self._plan.operations), parsed_args, spec=parsed_args.spec)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report nothing: the findings were printed before the first change."""

"""Common parts of the commands that sync a cloud with the spec: plan and apply of flavors, quotas and tenancy."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gpustack.base.errors import CHANGES
from gpustack.base.findings import Finding
from gpustack.base.operations import Operation
from gpustack.cli.change import ChangeCommand, refuse_errors, show_operations
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Command, add_exit_code, add_format, confirm

if TYPE_CHECKING:
    from gpustack.changes.change import CloudChange


class SyncPlan(Protocol):
    """The changes that sync a cloud with a spec, and the findings about them."""

    @property
    def operations(self) -> Sequence[Operation]:
        """The changes, in their order."""

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings; an error among them blocks the plan."""

    def to_dict(self) -> dict[str, object]:
        """The plan as plain data."""


class PlanCommand(OpenStackCommand):
    """Base class: show the plan, then its findings."""

    _plan: SyncPlan

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        self.add_options(parser)
        add_format(parser)
        self.add_more(parser)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of both commands."""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of one of the two commands."""
        add_exit_code(parser, "the plan contains changes")

    def planned(self, parsed_args: argparse.Namespace) -> SyncPlan:
        """Read the spec and the cloud, and plan."""
        raise NotImplementedError

    def to_dict(self, plan: Any) -> dict[str, object]:  # noqa: ANN401 - the plan of the subclass
        """The output for programs."""
        data: dict[str, object] = plan.to_dict()
        return data

    def show_summary(self, plan: Any) -> None:  # noqa: ANN401 - the plan of the subclass
        """Print the lines below the operations."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print the plan."""
        self._plan = self.planned(parsed_args)
        self._print(parsed_args.format)
        return CHANGES if parsed_args.exit_code and self._plan.operations else 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings; an error among them blocks the plan."""
        refuse_errors(self, self._plan.findings)
        return 0

    def show_counts(self, unchanged: int) -> None:
        """Print the number of changes, by their verb."""
        counts = Counter(operation.kind.partition("_")[0] for operation in self._plan.operations)
        changes = ", ".join(f"{counts[verb]} to {verb}" for verb in ("create", "change", "delete"))
        self.show(f"{changes}, {unchanged} unchanged")

    def _print(self, form: str) -> None:
        if form != "text":
            self.show_data(self.to_dict(self._plan), form)
            return
        show_operations(self, self._plan.operations)
        self.show_summary(self._plan)
        self.app.stdout.flush()


class ApplyCommand(ChangeCommand, PlanCommand):
    """Base class: show the plan and its findings, ask for confirmation, and carry the plan out."""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        super().add_more(parser)
        self.add_change_options(parser)

    def changes(self, parsed_args: argparse.Namespace, plan: Any) -> Sequence[CloudChange]:  # noqa: ANN401
        """The operations of a plan of the subclass, as changes."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, and carry it out."""
        self._plan = self.planned(parsed_args)
        self._print(parsed_args.format)
        refuse_errors(self, self._plan.findings)
        if not self._plan.operations:
            return 0
        if not parsed_args.check:
            self.carry_out(self.changes(parsed_args, self._plan), parsed_args, spec=parsed_args.spec)
        return CHANGES if parsed_args.exit_code else 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report nothing: the findings were printed before the first change."""
        return 0


def agree(command: Command, operations: Sequence[Operation], *, yes: bool) -> None:
    """Ask for confirmation of operations.

    :param yes: whether the command line confirms them.
    :raises UsageError: if standard input is not a terminal.
    :raises GpustackError: if the answer is not yes.
    """
    if not yes:
        confirm(command, f"Carry out {len(operations)} operation{'s'[: len(operations) > 1]}?")

"""Common parts of the commands that sync a cloud with the spec: plan and apply of flavors, quotas and tenancy."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gpustack.base.errors import CHANGES, PlanError
from gpustack.base.findings import Finding, errors
from gpustack.base.operations import Operation
from gpustack.base.text import printable
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Command, add_exit_code, add_format, confirm

if TYPE_CHECKING:
    from openstack.connection import Connection


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
    _connection: Connection | None = None

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

    def connection(self, parsed_args: argparse.Namespace, *, timeout: float | None = None) -> Connection:
        """The connection to the cloud, one for all requests of the command."""
        self._connection = self._connection or super().connection(parsed_args, timeout=timeout)
        return self._connection

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print the plan."""
        self._plan = self.planned(parsed_args)
        self._print(parsed_args.format)
        return CHANGES if parsed_args.exit_code and self._plan.operations else 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings; an error among them blocks the plan."""
        self._tell_findings()
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

    def _tell_findings(self) -> None:
        self.report_findings(self._plan.findings)
        stopped = errors(self._plan.findings)
        if stopped:
            count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
            raise PlanError(f"the plan is blocked by {count}; nothing was changed", remedy="see the findings above")


class ApplyCommand(PlanCommand):
    """Base class: show the plan and its findings, ask for confirmation, and apply the plan."""

    def add_more(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")

    def apply(self, parsed_args: argparse.Namespace, plan: Any) -> None:  # noqa: ANN401 - the plan of the subclass
        """Carry the operations of a plan out, and report the result."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, and apply it."""
        self._plan = self.planned(parsed_args)
        self._print(parsed_args.format)
        self._tell_findings()
        if self._plan.operations:
            agree(self, self._plan.operations, yes=parsed_args.yes)
            self.apply(parsed_args, self._plan)
        return 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report nothing: the findings were printed before the first change."""
        return 0

    def tell_one(self, operation: Operation) -> None:
        """Report an operation that was carried out, with ``-v``."""
        if self.verbosity > 1:
            self.report(f"done: {operation.describe()}")


def show_operations(command: Command, operations: Sequence[Operation]) -> None:
    """Print operations with their details."""
    for operation in operations:
        command.show(printable(operation.describe()))
        for line in operation.details():
            command.show(f"    {printable(line)}", changes=True)


def agree(command: Command, operations: Sequence[Operation], *, yes: bool) -> None:
    """Ask for confirmation of operations.

    :param yes: whether the command line confirms them.
    :raises UsageError: if standard input is not a terminal.
    :raises GpustackError: if the answer is not yes.
    """
    if not yes:
        confirm(command, f"Carry out {len(operations)} operation{'s'[: len(operations) > 1]}?")

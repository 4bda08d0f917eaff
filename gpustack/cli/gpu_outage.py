"""``gpustack gpu disable`` and ``enable``: take a GPU out of service, and bring it back."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpustack.base.errors import PlanError, UsageError
from gpustack.cli.change import show_operations
from gpustack.cli.common import add_format
from gpustack.cli.gpu import FleetCommand
from gpustack.cli.sync import agree

if TYPE_CHECKING:
    from gpustack.base.operations import Operation
    from gpustack.operate.gpu_service.plan import OutagePlan, Seen

_REASON = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")


class _OutageCommand(FleetCommand):
    """Base class: show the plan, ask for confirmation, apply it, and show the state afterwards."""

    product = "state"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the GPU."""
        super().add_arguments(parser)
        parser.add_argument("host", metavar="HOST", help="the host, as Nova names it")
        parser.add_argument("address", metavar="ADDRESS", help="the PCI address: 0000:65:00.0")
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
        parser.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")
        add_format(parser, "the plan")

    def plan(self, seen: Seen, parsed_args: argparse.Namespace) -> OutagePlan:
        """The plan for a GPU in this state."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Show the plan, ask for confirmation, and apply it."""
        from gpustack.base.findings import errors

        seen = self._look(parsed_args)
        plan = self.plan(seen, parsed_args)
        self._print(seen, plan, parsed_args.format)
        self.report_findings((*self._fleet.findings, *plan.findings))
        if errors(plan.findings):
            raise PlanError("the plan is blocked by an error; nothing was changed", remedy="see the finding above")
        if not plan.operations or parsed_args.dry_run:
            return 0
        agree(self, plan.operations, yes=parsed_args.yes)
        for operation in plan.operations:
            self._carry_out(operation, seen.place, parsed_args)
        now = self.plan(self._look(parsed_args), parsed_args)
        self.report(f"{seen.place}: {now.state}")
        return 0

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report what is missing; the findings were printed before the first change."""
        from dataclasses import replace

        self._fleet = replace(self._fleet, findings=(), notes=())
        return super().after(parsed_args)

    def _look(self, parsed_args: argparse.Namespace) -> Seen:
        from dataclasses import replace

        from gpustack.fleet.read import Detail
        from gpustack.operate.gpu_service.look import look
        from gpustack.pci.address import Address
        from gpustack.spec.load import load_spec

        try:
            address = str(Address.parse(parsed_args.address))
        except ValueError as error:
            raise UsageError(f"{parsed_args.address!r} is no PCI address: {error}") from error
        spec = load_spec(parsed_args.spec) if parsed_args.spec else None
        fleet = self.read(parsed_args, Detail.HOLDERS, frozenset({parsed_args.host}))
        cloud = self.connection(parsed_args)
        seen = look(cloud, fleet, parsed_args.host, address, spec, self._given.hosts)
        places = (seen.place, seen.host)
        self._fleet = replace(fleet, findings=tuple(entry for entry in fleet.findings if entry.place in places))
        return seen

    def _carry_out(self, operation: Operation, place: str, parsed_args: argparse.Namespace) -> None:
        from gpustack.cloud import compute, placement
        from gpustack.operate.gpu_service import record
        from gpustack.operate.gpu_service.plan import Reservation, Switch

        cloud = self.connection(parsed_args)
        record.append(record.default_path(), operation, place)
        if isinstance(operation, Reservation):
            placement.write_inventory(cloud, operation.before, operation.after)
        elif isinstance(operation, Switch):
            compute.switch(cloud, operation.service, enabled=operation.enabled, reason=operation.reason)

    def _print(self, seen: Seen, plan: OutagePlan, form: str) -> None:
        if form != "text":
            self.show_data({"host": seen.host, "address": seen.address, **plan.to_dict()}, form)
            return
        self.show(f"{seen.place}: {plan.state}")
        show_operations(self, plan.operations)
        if plan.steps:
            self.show("Remaining steps:")
        for number, step in enumerate(plan.steps, 1):
            self.show(f"  {number}. {step}")
            if number == 1:
                for line in plan.lines:
                    self.show(f"       {line}")


class GpuDisableCommand(_OutageCommand):
    """Take a GPU out of service: no new instance gets it, and no instance that has it is touched.

    With PCI in Placement, reserves the GPU at once. Otherwise, disables nova-compute of the host until the GPU is
    excluded, if the GPU may be free. Prints the lines for the spec and the remaining steps. Run it again after each
    step: it reports whether Nova still has the GPU. `gpu enable` reverts it.
    """

    epilog = """\
gpustack gpu disable gpu01 0000:65:00.0 --reason "fatal AER errors" --spec gpustack.yaml;
gpustack gpu disable gpu01 0000:65:00.0 --reason "no reset" --config-file /etc/nova/nova.conf --yes"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why the GPU leaves service")
        parser.add_argument(
            "--disable-service",
            action=argparse.BooleanOptionalAction,
            help="disable nova-compute of the host until the GPU is excluded (default: only if nothing else keeps new"
            " instances off the GPU)",
        )

    def plan(self, seen: Seen, parsed_args: argparse.Namespace) -> OutagePlan:
        from gpustack.operate.gpu_service.plan import disable

        if not _REASON.match(parsed_args.reason):
            raise UsageError("--reason must be one line of 1 to 200 characters")
        if seen.gone and seen.entry is None and not seen.switched_off_for_it:
            known = ", ".join(gpu.address for gpu in self._fleet.gpus if gpu.host == seen.host and gpu.address)
            raise UsageError(
                f"Nova has no GPU {seen.address} on {seen.host}" + (f"; it has {known}" if known else ""),
                remedy="check the address; if the GPU is excluded already, name the spec with its entry: --spec",
            )
        if seen.inventory is not None and not parsed_args.spec:
            self.report("warning: without --spec, gpustack assumes that Nova schedules by Placement (pci_in_placement)")
        return disable(seen, parsed_args.reason, f"{datetime.now(UTC):%Y-%m-%d}", close=parsed_args.disable_service)


class GpuEnableCommand(_OutageCommand):
    """Bring a GPU back into service: release it in Placement, and enable a nova-compute that `gpu disable` disabled.

    With --spec, refuses while `out_of_service` still lists the GPU.
    """

    epilog = "gpustack gpu enable gpu01 0000:65:00.0 --spec gpustack.yaml"

    def plan(self, seen: Seen, parsed_args: argparse.Namespace) -> OutagePlan:
        from gpustack.operate.gpu_service.plan import enable

        return enable(seen)

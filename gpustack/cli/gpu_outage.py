"""``gpustack gpu disable`` and ``enable``: take a GPU out of service, and bring it back."""

import argparse
import re
from dataclasses import replace
from datetime import UTC, datetime

from gpustack.base.errors import CloudError, UsageError
from gpustack.changes.closed import ReasonChange
from gpustack.cli.change import ChangeCommand, refuse_errors, show_operations
from gpustack.cli.common import add_exit_code
from gpustack.cli.gpu import FleetCommand
from gpustack.cli.options import option, pci_address
from gpustack.cloud.closed import may_switch
from gpustack.cloud.placement import may_reserve
from gpustack.fleet.join import unenforced
from gpustack.fleet.read import Detail
from gpustack.operate.gpu_service.look import look
from gpustack.operate.gpu_service.plan import OutagePlan, Seen, disable, enable

_REASON = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")


class _OutageCommand(FleetCommand, ChangeCommand):
    """Base class: show the plan, ask for confirmation, carry it out, and show the state afterwards."""

    product = "state"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the GPU."""
        super().add_arguments(parser)
        parser.add_argument("host", metavar="HOST", help="the host, as Nova names it")
        about = "the PCI address of the card or virtual function: 0000:65:00.0"
        parser.add_argument("address", type=pci_address, metavar="ADDRESS", help=about)
        option(parser, "--force", "accept a GPU that only you know, and no source has")
        self.add_change_options(parser, "--dry-run")

    def plan(self, seen: Seen, parsed_args: argparse.Namespace) -> OutagePlan:
        """The plan for a GPU in this state."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Show the plan, ask for confirmation, and carry it out."""
        seen = self._look(parsed_args, force=parsed_args.force)
        plan = self.plan(seen, parsed_args)
        self._print(seen, plan, parsed_args.format)
        refuse_errors(self, (*self._fleet.findings, *plan.findings))
        if plan.operations and not parsed_args.check:
            self._refuse_without_rights(plan, parsed_args)
            self.carry_out(plan.operations, parsed_args, spec=parsed_args.spec, question=plan.question)
            plan = self.plan(self._look(parsed_args, force=True), parsed_args)
            self.report(f"{seen.place}: {plan.state}")
            if plan.left:
                self.report(f"host stays closed: {plan.left}")
        self.to_do = plan.protection is not None and not plan.protection.after_instance

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report what is missing; the findings were printed before the first change."""
        self._fleet = replace(self._fleet, findings=(), notes=())
        super().after(parsed_args)

    def _look(self, parsed_args: argparse.Namespace, *, force: bool) -> Seen:
        fleet = self.read(parsed_args, Detail.HOLDERS, frozenset({parsed_args.host}))
        seen = look(
            self.connection(parsed_args), fleet, parsed_args.host, parsed_args.address, self._given, force=force
        )
        places, changes = (seen.place, seen.host), unenforced(fleet)  # what this command is about to change
        findings = (entry for entry in fleet.findings if entry.place in places and entry not in changes)
        self._fleet = replace(fleet, findings=tuple(findings))
        snapshot = [f"--snapshot={path}" for path in parsed_args.snapshot or ("FILE",)]
        return replace(seen, sources=[str(parsed_args.spec or "SPEC"), seen.host, *snapshot])

    def _refuse_without_rights(self, plan: OutagePlan, parsed_args: argparse.Namespace) -> None:
        cloud = self.connection(parsed_args)
        kinds = {type(operation) for operation in plan.operations}
        if not all((may_switch if kind is ReasonChange else may_reserve)(cloud) for kind in kinds):
            raise CloudError(
                "the user may not change services of Nova, or inventories of Placement; nothing was changed",
                remedy="use a cloud of clouds.yaml whose user has both rights: os_compute_api:os-services:update, and"
                " placement:resource_providers:inventories:update (the role admin)",
            )

    def _print(self, seen: Seen, plan: OutagePlan, form: str) -> None:
        if form != "text":
            self.show_data({"host": seen.host, "address": seen.address, **plan.to_dict()}, form)
            return
        self.show(f"{seen.place}: {plan.state}")
        show_operations(self, plan.operations)
        if plan.protection:
            self.show("New instances are kept off:")
            for line in plan.protection.lines():
                self.show(f"  {line}")
        if plan.left:
            self.show(f"host stays closed: {plan.left}")
        if plan.steps:
            self.show("Remaining steps:")
        for number, step in enumerate(plan.steps, 1):
            self.show(f"  {number}. {step}")
            if number == 1:
                for line in plan.lines:
                    self.show(f"       {line}")


class GpuDisableCommand(_OutageCommand):
    """Take a GPU out of service: no new instance gets it, and no instance that has it is touched.

    If Nova schedules by Placement's devices, reserves the GPU, also while an instance has it. Otherwise, closes the
    host (disables nova-compute) until the GPU is excluded. If it is unknown how Nova schedules, does both;
    --config-file and --spec show it. For a virtual function that is a PCI device, closes the host unless its card is
    reserved: Placement counts by card. Prints what keeps new instances off, the lines for the spec and the remaining
    steps. Run it again after each step: it reports whether Nova still has the GPU. `gpu enable` reverts it.
    """

    epilog = """\
gpustack gpu disable gpu01 0000:65:00.0 --reason "fatal AER errors" --spec gpustack.yaml;
gpustack gpu disable gpu01 0000:65:00.0 --reason "no reset" --config-file /etc/nova/nova.conf --yes"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--reason TEXT", "why the GPU leaves service", required=True)
        parser.add_argument(
            "--disable-service",
            action=argparse.BooleanOptionalAction,
            help="close the host until the GPU is excluded (default: only if nothing else certainly keeps new instances"
            " off the GPU)",
        )
        add_exit_code(parser)

    def plan(self, seen: Seen, parsed_args: argparse.Namespace) -> OutagePlan:
        if not _REASON.match(parsed_args.reason):
            raise UsageError("--reason must be one line of 1 to 200 characters")
        return disable(seen, parsed_args.reason, f"{datetime.now(UTC):%Y-%m-%d}", close=parsed_args.disable_service)


class GpuEnableCommand(_OutageCommand):
    """Bring a GPU back into service: release it in Placement, and open its host if no other reason keeps it closed.

    With --spec, refuses while `out_of_service` still lists the GPU. A reservation that `gpu disable` did not record
    belongs to somebody else, and stays.
    """

    epilog = "gpustack gpu enable gpu01 0000:65:00.0 --spec gpustack.yaml"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--take-over", "also release a reservation of somebody else")

    def plan(self, seen: Seen, parsed_args: argparse.Namespace) -> OutagePlan:
        return enable(seen, take_over=parsed_args.take_over)

"""``gpustack reclaim …``, and ``openstack gpu reclaim …``: free the GPUs of idle instances."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.errors import PartialError
from gpustack.cli.change import ChangeCommand, show_operations
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code
from gpustack.cli.options import option, positive
from gpustack.cli.output import Table, table
from gpustack.cli.progress import counting
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.offer.flavor.flavors import present_flavors
from gpustack.operate.reclaim.changes import changes
from gpustack.operate.reclaim.decide import decide, held
from gpustack.operate.reclaim.model import Decision, Rules, Step, columns, rules_of
from gpustack.operate.reclaim.read import Candidates, Reader
from gpustack.spec.load import load_spec


class ReclaimCommand(OpenStackCommand):
    """Base class: read the idle instances, and report what blocks them."""

    _known: Candidates
    _decisions: Sequence[Decision]
    _reader: Reader
    _rules: Rules

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        option(parser, "--instance ID…", "only this instance")
        text = "also shelve instances with ephemeral or swap disks, which a snapshot does not contain"
        option(parser, "--accept-loss", text)
        option(
            parser,
            "--snapshot-space GIB",
            "the free space of Glance's store: also shelve instances that were booted from an image, as long as"
            " their snapshots fit",
            type=positive,
        )

    def read(self, parsed_args: argparse.Namespace) -> None:
        """Read the instances, and decide."""
        spec = load_spec(parsed_args.spec)
        cloud = self.connection(parsed_args)
        rules = rules_of(spec, present_flavors(cloud).project)
        self._rules = replace(rules, accept_loss=parsed_args.accept_loss, space=parsed_args.snapshot_space)
        self._reader = Reader(cloud, ServiceCloud(cloud), self._rules)
        with counting(self, "reading instances") as progress:
            self._known = self._reader.candidates(progress)
        now = datetime.now(UTC).replace(tzinfo=None)
        decisions = (*decide(self._known.entries, self._rules, now), *held(self._known.held, self._rules, now))
        only = parsed_args.instance
        self._decisions = [entry for entry in decisions if not only or entry.server.id in only]

    def of_steps(self, *steps: Step) -> Sequence[Decision]:
        """The decisions with one of these steps."""
        return [decision for decision in self._decisions if decision.step in steps]

    def report_plan(self) -> None:
        """Report the findings, and what is missing."""
        findings = [finding for decision in self._decisions for finding in decision.findings]
        self.report_findings(findings, brief=True)
        self.report_partial(self._known.gaps)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Fail if the list is partial."""
        if self._known.gaps:
            raise PartialError("the list is partial", remedy="see the reasons above")


class ReclaimPlanCommand(ReclaimCommand, Lister):
    """List instances that hold GPUs and are idle: stopped for long, or expired. Changes nothing.

    The rules are in the section `reclaim` of the spec. The next step of an instance is a notice to its users, then
    shelving, which frees the GPUs and keeps the instance. If it is `nothing`, a finding has the reason. Instances that
    hold GPUs in a state without a rule (paused, suspended, ERROR, RESCUE) are listed as `held, no rule`, and stay.
    """

    epilog = """\
gpustack reclaim plan gpustack.yaml; gpustack reclaim plan gpustack.yaml -f csv;
gpustack reclaim plan gpustack.yaml --snapshot-space 500 --exit-code"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        self.read(parsed_args)
        return table(parsed_args, columns(self._known.projects, self._known.users), self._decisions)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the sum, the findings, and what is missing."""
        idle = [decision for decision in self._decisions if decision.reason]
        self.report(f"idle instances: {len(idle)}, GPUs of them: {sum(entry.gpus for entry in idle)}")
        if without := [decision for decision in self._decisions if decision.held]:
            count = sum(entry.gpus for entry in without)
            self.report(f"instances that no rule covers: {len(without)}, GPUs of them: {count}")
        self.report_plan()
        super().after(parsed_args)
        self.outcome = "notify" if self.of_steps(Step.NOTIFY, Step.WITHDRAW) else ""
        self.to_do = bool(self.outcome or self.of_steps(Step.SHELVE))


class _Changing(ChangeCommand, ReclaimCommand):
    """Base class of the commands that change instances."""

    steps: tuple[str, ...]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        self.add_change_options(parser)
        option(parser, "--max-count N", "stop after N instances", type=positive)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.read(parsed_args)
        self.report_plan()
        chosen = self.of_steps(*map(Step, self.steps))[: parsed_args.max_count]
        wait = {"seconds": parsed_args.wait} if "wait" in parsed_args else {}
        made = changes(chosen, self._reader.again, self._rules, projects=self._known.projects, **wait)
        show_operations(self, made, parsed_args.format)
        if not made:
            self.report("nothing to do")
        elif not parsed_args.check:
            self.carry_out(made, parsed_args, spec=parsed_args.spec)


class ReclaimNotifyCommand(_Changing):
    """Write a notice to idle instances, and remove it from those that are in use again. Asks for confirmation.

    The notice is the metadata key `gpustack:reclaim_at`, with the time from which the instance may be shelved. Every
    later start or stop ends the notice. If a notice was not written, the exit code is 14.
    """

    steps = ("notify", "withdraw")
    epilog = """\
gpustack reclaim notify gpustack.yaml; gpustack reclaim notify gpustack.yaml --yes --snapshot-space 500"""


class ReclaimApplyCommand(_Changing):
    """Shelve the idle instances whose notice is over, one after the other. Asks for confirmation.

    Directly before, each instance is read again; one that was started or changed is left alone. Nova shuts the instance
    down, saves its root disk and frees its GPUs; the instance, its volumes and its ports stay. `gpustack undo`
    unshelves the instances that nobody used since. If an instance was not shelved, the exit code is 14.
    """

    steps = ("shelve",)
    epilog = """\
gpustack reclaim apply gpustack.yaml; gpustack reclaim apply gpustack.yaml --snapshot-space 500 --max-count 5"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--wait S", "wait S seconds for each instance", type=positive, default=3600)

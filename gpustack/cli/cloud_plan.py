"""``gpustack cloud plan`` and ``apply``: flavors, limits, tenancy and images of a spec, as one change."""

import argparse
import re

from gpustack.base.errors import JournalError, PlanError
from gpustack.base.files import digest, write_atomic
from gpustack.changes.journal import Cloud, PlannedChange
from gpustack.changes.saved import AGAIN, SavedPlan, is_saved_plan, load
from gpustack.cli.change import kinds, refuse_errors, show_operations
from gpustack.cli.options import add_snapshot, option
from gpustack.cli.sync import ApplyCommand, PlanCommand
from gpustack.cloud import session
from gpustack.offer.cloud_plan.plan import GROUPS, CloudPlan

_GROUPS = ",".join(GROUPS)


def _groups(text: str) -> str:
    """The groups as typed, which the next command repeats."""
    if strange := sorted(set(text.split(",")) - set(GROUPS)):
        raise argparse.ArgumentTypeError(f"unknown group {', '.join(map(repr, strange))}; the groups are {_GROUPS}")
    return text


def _time(text: str) -> str:
    """A time as typed, for the same reason."""
    if re.fullmatch("[1-9][0-9]{0,5}[smh]", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 10m or 1h")
    return text


class _CloudCommand(PlanCommand):
    """Base class: all groups of the spec, or those of ``--only``."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        text = f"sync these groups, separated by commas: {_GROUPS} (default: those of which the spec has a section)"
        option(parser, "--only GROUPS", text, type=_groups)
        add_snapshot(parser, ", for sizes `auto` and for the number of GPUs")
        option(parser, "--release NAME", "plan for this release of Nova (default: of the spec)")
        option(parser, "--prune", "delete flavors, limits, aggregates and traits of an earlier spec")
        option(parser, "--adopt", "adopt existing flavors of the same names")

    def groups(self, parsed_args: argparse.Namespace) -> frozenset[str] | None:
        return frozenset(parsed_args.only.split(",")) if parsed_args.only else None

    def data(self, plan: CloudPlan) -> dict[str, object]:
        return {"unchanged": plan.unchanged}


class CloudPlanCommand(_CloudCommand):
    """Show the changes that sync a cloud with the spec: flavors, limits, tenancy and images. Changes nothing.

    The changes are in the order in which `cloud apply` makes them. At each point of this order, no project can use a
    GPU that neither the old nor the new state allows, and none loses one that both allow. Sections that the spec lacks
    are not touched.
    """

    epilog = """\
gpustack cloud plan gpustack.yaml;
gpustack cloud plan gpustack.yaml --only flavors,quotas --exit-code -f json;
gpustack cloud plan gpustack.yaml --prune --out change.plan"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--out FILE", "save the plan for `gpustack cloud apply FILE`")

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings, and save the plan if none of them is an error."""
        refuse_errors(self, self._plan.findings)
        if parsed_args.out:
            changes = self.complete(parsed_args, self._plan.operations)
            plan = SavedPlan(
                cloud=Cloud(**session.place_of(self.connection(parsed_args))),
                spec=str(parsed_args.spec),
                spec_sha256=digest(parsed_args.spec),
                changes=[PlannedChange.model_validate(change.to_record()) for change in changes],
            )
            write_atomic(parsed_args.out, plan.model_dump_json() + "\n", mode=0o600)
            self.report(f"{parsed_args.out}: saved")


class CloudApplyCommand(ApplyCommand, _CloudCommand):
    """Sync a cloud with the spec: flavors, limits, tenancy and images, after showing the changes.

    Each object is read again directly before its change; one that changed since the plan is skipped. `gpustack undo`
    reverts the run. Instead of a spec, name a plan of `cloud plan --out`: these changes are made, and no others.
    """

    epilog = """\
gpustack cloud apply gpustack.yaml;
gpustack cloud apply gpustack.yaml --yes --prune --only flavors;
gpustack cloud apply change.plan --yes"""
    at_once = 8

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        text = "undo the run unless you confirm it within TIME after its end, also if the terminal is lost: 10m, 90s"
        option(parser, "--confirm-within TIME", text, type=_time)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.jobs, within = parsed_args.jobs, parsed_args.confirm_within or "0s"
        self.confirm_within = int(within[:-1]) * {"s": 1, "m": 60, "h": 3600}[within[-1]]
        if parsed_args.spec.is_file() and is_saved_plan(parsed_args.spec):
            self._carry_out_saved(parsed_args)
        else:
            super().take_action(parsed_args)

    def _carry_out_saved(self, parsed_args: argparse.Namespace) -> None:
        path, self.reads_plan = parsed_args.spec, True
        plan, changes = load(path, kinds())
        if plan.cloud.key != self.place(parsed_args).key:
            what = f"the plan is for another cloud: {plan.cloud}"
            raise JournalError(what, where=str(path), remedy="name that cloud with --os-cloud")
        if parsed_args.only or parsed_args.prune or parsed_args.adopt:
            raise PlanError("a saved plan is carried out as it is", where=str(path), remedy=AGAIN)
        self.rest = AGAIN
        show_operations(self, changes, parsed_args.format)
        if changes and not parsed_args.check:
            self.carry_out(changes, parsed_args, spec=path)
            self.outcome = "saved"

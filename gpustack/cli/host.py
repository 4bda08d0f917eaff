"""``gpustack host plan|image``: the changes that prepare hosts for GPU passthrough, and their files for an image."""

import argparse
from itertools import zip_longest
from pathlib import Path

from gpustack.base.errors import GpustackError, PlanError
from gpustack.base.findings import errors
from gpustack.base.host_groups import host_groups, pattern, patterns_of
from gpustack.base.text import counted
from gpustack.cli.common import Command, add_each, add_exit_code, add_format, add_source_options, gather
from gpustack.cli.inventory import in_spec, inventory
from gpustack.cli.options import option
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.image import image_for, save
from gpustack.prepare.host.plan import HostPlan
from gpustack.prepare.host.show import ShownPlan, shown_plan
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec, with_groups

TRIAL_SECONDS = 600
"""The same value as the role's default, gpustack_trial_seconds."""


class HostPlanCommand(Command):
    """Show the changes that prepare hosts for GPU passthrough, and their reasons. Changes nothing.

    `gpustack host apply` carries out the same plan. If an error blocks the plan of a host, `apply` changes nothing on
    this host, and the exit code is 13.
    """

    epilog = """\
gpustack host plan gpustack.yaml gpu01 --sudo; gpustack host plan gpustack.yaml --snapshot hosts.json;
gpustack host plan gpustack.yaml --root /mnt/image -f json"""

    _plans: tuple[HostPlan, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_source_options(parser)
        add_each(parser)
        add_format(parser)
        option(parser, "--adopt", "adopt configuration by hand for the same devices, as host apply --adopt does")
        option(parser, "--live", "bind devices on the running host where possible, as host apply --live does")
        option(parser, "--trial", "try new kernel arguments for one boot first, as host apply --trial does")
        shown = "show the differences of files (default: for a single host)"
        option(parser, "--diff", shown, action=argparse.BooleanOptionalAction)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec, hosts = _hosts_of_spec(self, parsed_args)
        targets = self._gathered.targets if parsed_args.inventory else ()
        plans: list[ShownPlan] = []
        for host, target in zip_longest(hosts, targets):
            try:
                plans.append(_planned(parsed_args, spec, host, target))
            except GpustackError as error:
                self._gathered = self._gathered.without(host, error)
        self._plans = tuple(shown.plan for shown in plans)
        kinds = [shown.kind for shown in plans]
        if parsed_args.format != "text":
            groups = patterns_of(host_groups(((shown.plan.host, shown.text) for shown in plans), kinds=kinds))
            data = [{**plan.to_dict(), "group": groups[plan.host]} for plan in self._plans]
            self.show_data(data, parsed_args.format)
        else:
            diffs = len(plans) == 1 if parsed_args.diff is None else parsed_args.diff
            texts = [(shown.plan.host, shown.text if diffs else shown.brief) for shown in plans]
            self.show_hosts(parsed_args, texts, [shown.text for shown in plans], kinds, changes=True)
            states = {
                "to change": sum(bool(plan.operations) for plan in self._plans),
                "blocked": sum(plan.refused for plan in self._plans),
                "to reboot": sum(bool(plan.reboot) and not plan.refused for plan in self._plans),
            }
            self.show_total({"host": len(self._plans), "GPU": sum(len(plan.gpus) for plan in self._plans)}, states)
        self.to_do = any(plan.operations for plan in self._plans)
        self.note(finding for plan in self._plans for finding in plan.findings)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report unreadable hosts and blocked plans."""
        if refused := [plan.host for plan in self._plans if plan.refused]:
            for failure in self._gathered.failures:
                self.report(str(failure.error), error=True)
            count = "the plan is" if len(self._plans) == 1 else f"{len(refused)} of {len(self._plans)} plans are"
            raise PlanError(f"{count} refused ({', '.join(refused)})", remedy="follow the remedies of the errors above")


class HostImageCommand(Command):
    """Write the files that prepare hosts of image mode (bootc, ostree) into a directory. Changes no host.

    Kernel arguments, modprobe and dracut files, and lines for the Containerfile of their image. After the hosts have
    booted the new image, `gpustack host verify` checks them like any other.
    """

    epilog = """\
gpustack host image gpustack.yaml gpu01 --sudo --out image;
gpustack host image gpustack.yaml --snapshot hosts.json --out image"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_source_options(parser)
        add_exit_code(parser)
        option(parser, "--out DIR", "write the files below this new directory", required=True)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        image = image_for(*_hosts_of_spec(self, parsed_args))
        self.report_findings(image.findings)
        if errors(image.findings):
            raise PlanError("the image is refused; nothing was written", remedy="follow the remedies of the errors")
        paths = save(image, parsed_args.out)
        self.report(f"{parsed_args.out}: {counted(len(paths), 'file')} for the image of {pattern(image.hosts)}")


def _planned(parsed_args: argparse.Namespace, spec: Spec, host: Host, target: str | None) -> ShownPlan:
    """Plan a host with the options of the command line and, as ``host apply -i`` does, those of the inventory.

    :param target: its name in the inventory; None without one.
    """
    chosen = {} if target is None else dict(inventory(parsed_args).settings(target).plan)
    chosen |= {name: True for name in ("adopt", "live", "trial") if getattr(parsed_args, name)}
    seconds = chosen.get("trial_seconds", TRIAL_SECONDS) if chosen.get("trial") else None
    return shown_plan(spec, host, adopt=bool(chosen.get("adopt")), live=bool(chosen.get("live")), trial=seconds)


def _hosts_of_spec(command: Command, parsed_args: argparse.Namespace) -> tuple[Spec, tuple[Host, ...]]:
    """The spec with the groups of its hosts, and the hosts; a snapshot may contain more hosts than the spec."""
    spec = load_spec(parsed_args.spec)
    gathered = gather(command, parsed_args, spec)
    spec, hosts = with_groups(spec, gathered.groups), gathered.hosts
    if parsed_args.snapshot and len(hosts) > 1:
        names = in_spec(parsed_args, spec, {host.hostname: host.hostname for host in hosts}, command.report)
        hosts = tuple(host for host in hosts if host.hostname in names)
    return spec, hosts

"""``gpustack gpu list``, and ``openstack gpu list``: the GPUs of the cloud and their holders."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpustack.base.errors import CloudError
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, ShowOne, add_exit_code
from gpustack.cli.options import add_fleet_files, add_snapshot, option, pci_address, snapshot_hosts
from gpustack.cli.output import table
from gpustack.cli.progress import counting
from gpustack.cloud.servers import Event
from gpustack.fleet.cards import Models, models_of
from gpustack.fleet.index import named
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Gap, Source, State
from gpustack.fleet.read import Databases, Detail, Given, read
from gpustack.fleet.select import Criteria, selected
from gpustack.fleet.story import chosen, history, shown, story
from gpustack.fleet.summary import by_project, grouped, noted
from gpustack.fleet.table import columns as columns_of
from gpustack.fleet.table import group_columns
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.scheduler import Scheduler, scheduler
from gpustack.spec.load import load_spec

_GROUPS = ("host", "model", "project")


class FleetCommand(OpenStackCommand):
    """Base class of the commands on GPUs in service: they read the fleet, and report what is missing.

    :cvar product: the noun of the output, for errors.
    """

    product = "list"
    _fleet: Fleet
    _given: Given

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the sources."""
        super().add_arguments(parser)
        group = parser.add_argument_group("other sources")
        add_snapshot(group, ", and compare")
        add_fleet_files(group)

    def read(self, parsed_args: argparse.Namespace, detail: Detail, only: frozenset[str] = frozenset()) -> Fleet:
        """Read the fleet from the chosen sources.

        :param only: the names of hosts that are of interest; empty for all.
        """
        self._given = given(parsed_args, snapshot_hosts(parsed_args, self.report), only)
        with counting(self, "reading instances") as progress:
            databases = databases_of(parsed_args)
            return join(read(lambda: self.connection(parsed_args), detail, self._given, databases, progress))

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings, and what is missing."""
        self.report_findings(self._fleet.findings, brief=True)
        for note in self._fleet.notes:
            self.report(note)
        self.report_partial(self._fleet.gaps, f"the {self.product} is")


def databases_of(parsed_args: argparse.Namespace) -> Databases | None:
    """The databases that --config-file leads to; None without it."""
    if not parsed_args.config_file:
        return None
    from gpustack.novadb.sources import Sources

    return lambda: Sources.from_nova_conf(parsed_args.config_file)


def scheduler_of(parsed_args: argparse.Namespace) -> Scheduler | None:
    """The options of nova-scheduler in the files of --config-file; None without it."""
    return scheduler(parsed_args.config_file) if parsed_args.config_file else None


def given(parsed_args: argparse.Namespace, hosts: tuple[Host, ...], only: frozenset[str]) -> Given:
    """Read the spec, and how Nova schedules, from the files that are named.

    :param hosts: the hosts whose facts are known.
    """
    spec = load_spec(parsed_args.spec, hosts) if parsed_args.spec else None
    known = scheduler_of(parsed_args)
    models = models_of(spec, known) if spec else Models(scheduled=known.by_devices if known else None)
    return Given(only=only, hosts=hosts, models=models, spec=spec)


class GpuListCommand(FleetCommand, Lister):
    """List GPUs with their states, and the instances, projects and users that have them.

    With PCI in Placement, Nova and Placement show each GPU. Otherwise they show the GPUs in use on each host, without
    addresses. If a source does not answer, or the user may not read it, the list is partial, and the exit code is 23.
    """

    epilog = """\
gpustack gpu list; gpustack gpu list --state free --model a100; gpustack gpu list --group-by project;
gpustack gpu list --snapshot hosts.json -f json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)
        group = parser.add_argument_group("selection")
        option(group, "--host HOST…", "list only GPUs of this host")
        option(group, "--model TEXT…", "list only models with this text in their name")
        states = [state.value for state in State]
        option(group, "--state …", "list only GPUs in this state", choices=states)
        option(group, "--project PROJECT…", "list only GPUs of this project, by name or id")
        option(group, "--user USER…", "list only GPUs of this user, by name or id", dest="users")
        option(group, "--instance INSTANCE…", "list only GPUs of this instance, by name or id")
        parser.add_argument("--group-by", choices=_GROUPS, help="count the GPUs of each host, model or project")
        option(parser, "--long", "also list status, NUMA node, units and sources")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        names = ("host", "model", "project", "users", "instance")
        hosts, models, projects, users, servers = (tuple(getattr(parsed_args, name)) for name in names)
        states = tuple(map(State, parsed_args.state))
        criteria = Criteria(hosts=hosts, models=models, states=states, projects=projects, users=users, servers=servers)
        by = parsed_args.group_by
        plain = criteria == type(criteria)()
        detail = Detail.HOLDERS
        if by in ("host", "model") and not criteria.about_holders:
            detail = Detail.STATES
        elif by == "project" and plain and not parsed_args.config_file:
            detail = Detail.PROJECTS
        fleet = self.read(parsed_args, detail, frozenset(criteria.hosts))
        if detail is Detail.PROJECTS and fleet.complete and not all(group.name for group in by_project(fleet)):
            detail = Detail.HOLDERS  # during a move, an instance also holds the GPUs of its old flavor
            fleet = self.read(parsed_args, detail)
        self._fleet = noted(selected(fleet, criteria))
        if by:
            groups = by_project(self._fleet) if detail is Detail.PROJECTS else grouped(self._fleet, by)
            unknown = "Free" if by == "project" else "Instances" if detail is Detail.STATES else ""
            return table(parsed_args, group_columns(self._fleet, by, unknown), groups)
        return table(parsed_args, columns_of(self._fleet), self._fleet.gpus)


class GpuShowCommand(FleetCommand, ShowOne):
    """Show one GPU: card, place in the host, instance and its history, findings.

    The IOMMU group, the link, the drivers and the slot come from --snapshot.
    """

    text = staticmethod(shown)
    epilog = "gpustack gpu show gpu01 0000:65:00.0; gpustack gpu show gpu01 0000:65:00.0 --snapshot hosts.json -f json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)
        parser.add_argument("host", metavar="HOST", help="the host, as Nova names it")
        parser.add_argument("address", type=pci_address, metavar="ADDRESS", help="the PCI address: 0000:65:00.0")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        self._fleet = self.read(parsed_args, Detail.HOLDERS, frozenset({parsed_args.host}))
        gpu = self._gpu = chosen(self._fleet, parsed_args.host, parsed_args.address)
        events: list[Event] = []
        for server in dict.fromkeys(holder.server.id for holder in gpu.holders if holder.server):
            try:
                of_server, missing = history(self.connection(parsed_args), server)
            except CloudError as error:
                of_server, missing = (), error.what
            events += of_server
            if missing:
                gap = Gap(source=Source.NOVA, reason=f"{missing}; the history is incomplete")
                self._fleet = replace(self._fleet, partial=(*self._fleet.partial, gap))
        fields = story(self._fleet, gpu, named(self._given.hosts, {gpu.host, gpu.node}), events)
        return tuple(fields), tuple(fields.values())

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report what is missing; the findings are fields."""
        names = {self._gpu.host, self._gpu.node}
        places = names | {f"{name} {self._gpu.address}" for name in names}
        findings = (finding for finding in self._fleet.findings if finding.place in places)
        self._fleet = replace(self._fleet, findings=tuple(findings), notes=())
        super().after(parsed_args)

"""``gpustack report``: the GPUs in service as a web page."""

import argparse
from dataclasses import replace
from datetime import UTC, datetime

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.base.files import write_atomic
from gpustack.base.findings import Finding
from gpustack.base.text import counted
from gpustack.cli.common import add_exit_code
from gpustack.cli.gpu import FleetCommand, databases_of, scheduler_of
from gpustack.cli.options import option, release_of
from gpustack.cli.progress import counting
from gpustack.cloud import Connection
from gpustack.cloud.limits import LimitsCloud
from gpustack.configure.numa_nodes import spanning_flavors
from gpustack.fleet.model import Gap, Source
from gpustack.fleet.read import Detail
from gpustack.fleet.summary import noted
from gpustack.hosts.topology.check import check
from gpustack.offer.flavor import desired as flavors
from gpustack.offer.quota import desired as quotas
from gpustack.offer.quota.survey import survey
from gpustack.operate.capacity.assess import count_all
from gpustack.operate.capacity.model import Capacity
from gpustack.operate.capacity.table import COLUMNS
from gpustack.operate.report.page import Report, Row, flavor_row, parts, place
from gpustack.operate.report.quotas import QuotaTable, quota_table
from gpustack.operate.report.topologies import Topologies
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec

_UNNAMED = ("envvars", "defaults")
"""The names of openstacksdk for a cloud that variables describe."""


class ReportCommand(FleetCommand):
    """Write a web page about the GPUs in service: a map of hosts and GPUs, free GPUs, projects and findings.

    The page is one file, index.html, which needs no server and loads nothing from elsewhere. It contains names of
    instances, projects and users. If a source does not answer, or the user may not read it, the page is marked as
    partial, and the exit code is 23. With --spec, the page has the numbers of gpustack capacity, and
    the limits of projects if the spec has quotas.
    """

    epilog = """\
gpustack report --out report; gpustack report --out report --snapshot hosts.json --spec gpustack.yaml"""

    product = "report"
    _cloud = ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)
        option(parser, "--out DIR", "write index.html into this directory", required=True)

    def connection(self, parsed_args: argparse.Namespace) -> Connection:
        """The connection to the cloud, whose name is the title of the page."""
        cloud = super().connection(parsed_args)
        name = cloud.config.name or ""
        self._cloud = "" if name in _UNNAMED else name
        return cloud

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        path = place(parsed_args.out)
        spec = load_spec(parsed_args.spec) if parsed_args.spec else None
        at = datetime.now(UTC).replace(tzinfo=None)
        fleet = noted(self.read(parsed_args, Detail.HOLDERS))
        topologies = Topologies(self._given.hosts)
        of_hosts = [finding for built in topologies.all() for finding in check(built)]
        if spec is not None:
            of_hosts += [finding for host in self._given.hosts for finding in spanning_flavors(host, spec)]
        self._fleet = replace(fleet, findings=(*fleet.findings, *of_hosts))
        flavors = self._flavors(parsed_args, spec) if spec is not None and spec.nova and spec.flavors else None
        quotas = self._quotas(parsed_args, spec) if spec is not None and spec.quotas is not None else None
        report = Report(
            fleet=self._fleet, at=at, cloud=self._cloud, topologies=topologies, flavors=flavors, quotas=quotas
        )
        write_atomic(path, parts(report), mode=0o644)
        hosts = len({count.host for count in self._fleet.counts})
        where = f" on {counted(hosts, 'host')}" if hosts else ""  # without rights, the hosts are unknown
        self.show(f"{path}: {counted(len(self._fleet.gpus), 'GPU')}{where}")

    def _quotas(self, parsed_args: argparse.Namespace, spec: Spec) -> QuotaTable:
        """Read the limits of projects, and add what is missing to the fleet."""
        projects = {holder.project for gpu in self._fleet.gpus for holder in gpu.holders}
        gaps: tuple[str, ...]
        try:
            known = survey(LimitsCloud(self.connection(parsed_args)), quotas.wanted(spec), projects)
        except CloudError as error:
            gaps, table = (f"{error.what}; limits are unknown",), QuotaTable(unknown=error.what)
        else:
            gaps, table = known.gaps, quota_table(known)
        partial = (Gap(source=Source.KEYSTONE, reason=gap) for gap in gaps)
        self._fleet = replace(self._fleet, partial=(*self._fleet.partial, *partial))
        return table

    def _flavors(self, parsed_args: argparse.Namespace, spec: Spec) -> list[Row]:
        """Count what fits, and add what is missing for it to the fleet."""
        desired = flavors.wanted(spec, release=release_of(None, spec), hosts=self._given.hosts)
        gaps: tuple[Gap, ...] = ()
        counted: list[Capacity] = []
        found: list[Finding] = []
        known = {"databases": databases_of(parsed_args), "scheduler": scheduler_of(parsed_args)}
        try:
            cloud, sources = self.connection(parsed_args), {"fleet": self._fleet, "facts": self._given.hosts, **known}
            with counting(self, "asking Placement") as progress:
                counted, found, missing = count_all(cloud, spec, desired.flavors, progress=progress, **sources)
        except (CloudError, DatabaseError) as error:
            gaps = (Gap(source=Source.NOVA, reason=f"{error.what}; capacity is unknown"),)
        else:
            # Those of the APIs were read before; the others are about cells.
            gaps = tuple(Gap(source=Source.DATABASE, reason=gap) for gap in missing if gap not in self._fleet.gaps)
        self._fleet = replace(
            self._fleet,
            findings=(*self._fleet.findings, *desired.findings, *found),
            partial=(*self._fleet.partial, *gaps),
        )
        return [flavor_row([column.cell(entry) for column in COLUMNS if column.title]) for entry in counted]

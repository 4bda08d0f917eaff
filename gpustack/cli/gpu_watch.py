"""``gpustack gpu watch``: metrics of GPUs in service for Prometheus."""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric

from gpustack.base.errors import CloudError, DatabaseError, GpustackError, PartialError, UsageError
from gpustack.base.findings import Finding
from gpustack.base.prometheus import Page
from gpustack.cli.gpu import FleetCommand, databases_of, scheduler_of
from gpustack.cli.options import interval, option, release_of, snapshot_hosts
from gpustack.cloud.limits import LimitsCloud
from gpustack.cloud.session import again, disconnect
from gpustack.fleet import metrics as fleet_metrics
from gpustack.fleet.join import unenforced
from gpustack.fleet.model import Fleet, Source
from gpustack.fleet.read import Detail
from gpustack.hosts.facts.model import Host
from gpustack.offer.flavor.desired import wanted as wanted_flavors
from gpustack.offer.quota import metrics as quota_metrics
from gpustack.offer.quota.desired import wanted
from gpustack.offer.quota.survey import survey
from gpustack.operate.capacity import metrics as capacity_metrics
from gpustack.operate.capacity.assess import count_all
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec

_Part = tuple[list[Metric], GpustackError | None]
_SUFFIX = ".prom"
"""node_exporter reads only files with this suffix."""


def listen(text: str) -> tuple[str, int]:
    """Parse ``[ADDRESS:]PORT``; loopback by default."""
    address, _colon, digits = text.rpartition(":")
    if not digits.isdecimal() or int(digits) >= 65536:
        raise argparse.ArgumentTypeError(f"{digits} is no port")
    if ":" in address and not (address.startswith("[") and address.endswith("]")):
        raise argparse.ArgumentTypeError(f"brackets are missing: [{address}]:{digits}")
    return address.strip("[]") or "127.0.0.1", int(digits)


def textfile(text: str) -> Path:
    """A file that node_exporter reads."""
    if not text.endswith(_SUFFIX):
        raise argparse.ArgumentTypeError(f"node_exporter reads only files that end with {_SUFFIX}")
    return Path(text)


class GpuWatchCommand(FleetCommand):
    """Collect metrics of all GPUs repeatedly, for Prometheus: states, instances, projects.

    Writes a textfile for node_exporter, serves HTTP, or both. With --spec, also counts how many instances of each of
    its flavors fit, and reads the limits of projects if it has quotas. Numbers that are not certain because a source
    did not answer are absent, and gpustack_collect_success of this source is 0. The next collection asks again.
    """

    streams = True
    epilog = """\
gpustack gpu watch --textfile /var/lib/prometheus/node-exporter/gpustack-gpus.prom;
gpustack gpu watch --textfile gpustack-gpus.prom --once; gpustack gpu watch --listen 9877"""

    _failed = False
    """Whether the last collection had an error: the next one connects again."""

    _begun = False
    """Whether a collection was published: from then on, a damaged file is an error of the collection alone."""

    _unenforced: tuple[Finding, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--textfile FILE", f"write FILE for node_exporter; it ends with {_SUFFIX}", type=textfile)
        text = "serve the metrics over HTTP, without authentication (default address: 127.0.0.1)"
        option(parser, "--listen [ADDRESS:]PORT", text, type=listen)
        often = parser.add_mutually_exclusive_group()
        text = "collect every SECONDS, however often Prometheus scrapes"
        option(often, "--interval SECONDS", text, type=interval, default=300.0)
        option(often, "--once", "collect once; for cron and systemd timers")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Collect, publish, sleep."""
        if not parsed_args.textfile and not parsed_args.listen:
            raise UsageError("neither a textfile nor a port is named", remedy="add --textfile FILE or --listen PORT")
        if parsed_args.once and parsed_args.listen:
            raise UsageError("--once and --listen exclude each other", remedy="omit --once, or use --textfile")
        page = Page()
        if parsed_args.listen:
            self._serve(page, *parsed_args.listen)
        while True:
            fault = self._collect(page, parsed_args)
            self._failed = fault is not None
            if parsed_args.textfile:
                page.write(parsed_args.textfile)
            if parsed_args.once:
                if fault is not None:
                    raise fault
                return
            if fault is not None:
                self.report(str(fault), error=True)
            time.sleep(parsed_args.interval)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report nothing: findings are for `gpustack gpu list`."""

    def _serve(self, page: Page, address: str, port: int) -> None:
        shown = f"[{address}]" if ":" in address else address
        try:
            port = page.serve(address, port)
        except OSError as error:
            reason = str(error.strerror).partition(" (")[0]  # Python adds the address
            raise GpustackError(f"can't listen on {shown}:{port}: {reason}", remedy="listen elsewhere") from error
        self.report(f"metrics: http://{shown}:{port}/metrics")

    def _collect(self, page: Page, parsed_args: argparse.Namespace) -> GpustackError | None:
        """Collect and publish; returns the reason if the metrics are not complete."""
        if self._connection is not None and self._failed:
            self._connection = None
            disconnect()
        elif self._connection is not None:
            again(self._connection)
        begun = time.monotonic()
        fleet: Fleet | None = None
        fault: GpustackError | None = None
        try:
            try:
                fleet = self.read(parsed_args, Detail.HOLDERS)
                fault = _partial("metrics", fleet.gaps)
                # GPUs out of service that nothing keeps new instances off, or may not, when they change.
                found = unenforced(fleet)
                if found != self._unenforced:
                    self.report_findings(found)
                self._unenforced = found
            except (CloudError, DatabaseError) as error:
                fault = error
            parts = list(self._of_spec(parsed_args, fleet))
        except GpustackError as error:
            if not self._begun:
                raise
            fault, fleet, parts = error, None, []
        asked = (Source.DATABASE if parsed_args.config_file else Source.NOVA, Source.PLACEMENT)
        others = {name: error is None and fleet is not None for name, _, error in parts}
        families = fleet_metrics.families(fleet, asked, time.time(), time.monotonic() - begun, **others)
        page.publish([*families, *(m for _, metrics, _ in parts for m in metrics)])
        self._begun = True
        return fault or next((error for *_, error in parts if error is not None), None)

    def _of_spec(self, parsed_args: argparse.Namespace, fleet: Fleet | None) -> Iterator[tuple[str, *_Part]]:
        """The metrics of the spec's flavors and quotas, if it has them, and why they are missing.

        :param fleet: the GPUs; None if the cloud did not answer, which is then not asked again.
        """
        hosts = snapshot_hosts(parsed_args)
        spec = load_spec(parsed_args.spec, hosts) if parsed_args.spec else None
        for name, section, read in (("capacity", "flavors", self._flavors), ("limits", "quotas", self._limits)):
            if spec is None or not getattr(spec, section):
                continue
            try:
                yield name, *(([], None) if fleet is None else read(parsed_args, spec, fleet, hosts))
            except (CloudError, DatabaseError, PartialError) as error:
                yield name, [], error

    def _flavors(self, parsed_args: argparse.Namespace, spec: Spec, fleet: Fleet, hosts: tuple[Host, ...]) -> _Part:
        cloud, databases, known = self.connection(parsed_args), databases_of(parsed_args), scheduler_of(parsed_args)
        flavors = wanted_flavors(spec, release=release_of(None, spec), hosts=hosts).flavors
        found, _, gaps = count_all(cloud, spec, flavors, fleet=fleet, facts=hosts, databases=databases, scheduler=known)
        metrics = [] if gaps else list(capacity_metrics.families(found))
        return metrics, _partial("numbers of free instances", gaps)

    def _limits(self, parsed_args: argparse.Namespace, spec: Spec, fleet: Fleet, _hosts: tuple[Host, ...]) -> _Part:
        projects = {holder.project for gpu in fleet.gpus for holder in gpu.holders}
        known = survey(LimitsCloud(self.connection(parsed_args)), wanted(spec), projects, with_use=False)
        return list(quota_metrics.families(spec, known.shares)), _partial("limits", known.gaps)


def _partial(what: str, reasons: Sequence[str]) -> PartialError | None:
    remedy = "correct the source; numbers that are uncertain without it are absent until it answers"
    text = f"the {what} are partial: {'; '.join(dict.fromkeys(reasons))}"
    return PartialError(text, remedy=remedy) if reasons else None

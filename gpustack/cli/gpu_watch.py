"""``gpustack gpu watch``: metrics of GPUs in service for Prometheus."""

import argparse
import time
from pathlib import Path

from prometheus_client.metrics_core import Metric

from gpustack.base.errors import CloudError, DatabaseError, GpustackError, PartialError, UsageError
from gpustack.base.findings import Finding
from gpustack.base.prometheus import Page
from gpustack.cli.common import release_of
from gpustack.cli.gpu import FleetCommand, databases_of, scheduler_of
from gpustack.cli.options import option, snapshot_hosts
from gpustack.cloud.limits import LimitsCloud
from gpustack.cloud.session import again, disconnect
from gpustack.fleet import metrics as fleet_metrics
from gpustack.fleet.join import unenforced
from gpustack.fleet.metrics import Round
from gpustack.fleet.model import Fleet, Source
from gpustack.fleet.read import Detail
from gpustack.offer.quota import metrics as quota_metrics
from gpustack.offer.quota.desired import wanted
from gpustack.offer.quota.survey import survey
from gpustack.operate.capacity import metrics as capacity_metrics
from gpustack.operate.capacity.metrics import capacities
from gpustack.spec.load import load_spec

_SUFFIX = ".prom"
"""node_exporter reads only files with this suffix."""


def listen(text: str) -> tuple[str, int]:
    """Parse ``[ADDRESS:]PORT``; loopback by default."""
    address, _colon, number = text.rpartition(":")
    port = int(number)
    if not 0 <= port < 65536:
        raise argparse.ArgumentTypeError(f"{number} is no port")
    if ":" in address and not (address.startswith("[") and address.endswith("]")):
        raise argparse.ArgumentTypeError(f"brackets are missing: [{address}]:{number}")
    return address.strip("[]") or "127.0.0.1", port


def textfile(text: str) -> Path:
    """A file that node_exporter reads."""
    if not text.endswith(_SUFFIX):
        raise argparse.ArgumentTypeError(f"node_exporter reads only files that end with {_SUFFIX}")
    return Path(text)


def interval(text: str) -> float:
    """Seconds between two collections."""
    number = float(text)
    if not 1 <= number < 86400:
        raise argparse.ArgumentTypeError("must be 1 second or more, and less than a day")
    return number


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

    _unenforced: tuple[Finding, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--textfile FILE", f"write FILE for node_exporter; it ends with {_SUFFIX}", type=textfile)
        option(
            parser,
            "--listen [ADDRESS:]PORT",
            "serve the metrics over HTTP, without authentication (default address: 127.0.0.1)",
            type=listen,
        )
        often = parser.add_mutually_exclusive_group()
        option(
            often,
            "--interval SECONDS",
            "collect every SECONDS, however often Prometheus scrapes (default: %(default)g)",
            type=interval,
            default=300.0,
        )
        option(often, "--once", "collect once; for cron and systemd timers")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
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
                return 0
            if fault is not None:
                self.report(str(fault), error=True)
            time.sleep(parsed_args.interval)

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report nothing: findings are for `gpustack gpu list`."""
        return 0

    def _report_unenforced(self, fleet: Fleet) -> None:
        """Report GPUs out of service that nothing keeps new instances off, or may not, when they change."""
        found = unenforced(fleet)
        if found != self._unenforced:
            self.report_findings(found)
        self._unenforced = found

    def _serve(self, page: Page, address: str, port: int) -> None:
        shown = f"[{address}]" if ":" in address else address
        try:
            port = page.serve(address, port)
        except OSError as error:
            raise GpustackError(
                f"can't listen on {shown}:{port}: {error.strerror}", remedy="name another address or port with --listen"
            ) from error
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
            fleet = self.read(parsed_args, Detail.HOLDERS)
            fault = _partial(fleet)
            self._report_unenforced(fleet)
        except (CloudError, DatabaseError) as error:
            fault = error
        flavors, failure = self._flavors(parsed_args, fleet)
        limits, unread = self._limits(parsed_args, fleet)
        collection = Round(
            sources=[Source.DATABASE if parsed_args.config_file else Source.NOVA, Source.PLACEMENT],
            ended=time.time(),
            seconds=time.monotonic() - begun,
            others={
                name: error is None and fleet is not None
                for name, metrics, error in (("capacity", flavors, failure), ("limits", limits, unread))
                if metrics is not None
            },
        )
        page.publish([*fleet_metrics.families(fleet, collection), *(flavors or ()), *(limits or ())])
        return fault or failure or unread

    def _flavors(
        self, parsed_args: argparse.Namespace, fleet: Fleet | None
    ) -> tuple[list[Metric] | None, GpustackError | None]:
        """The metrics of the spec's flavors, and why they are missing; None for the metrics if there are no flavors.

        :param fleet: the GPUs; None if the cloud did not answer, which is then not asked again.
        """
        hosts = snapshot_hosts(parsed_args)
        spec = load_spec(parsed_args.spec, hosts) if parsed_args.spec else None
        if spec is None or not spec.flavors:
            return None, None
        if fleet is None:
            return [], None
        try:
            cloud = self.connection(parsed_args)
            counted = capacities(
                cloud, spec, release_of(None, spec), hosts, databases_of(parsed_args), fleet, scheduler_of(parsed_args)
            )
        except (CloudError, DatabaseError, PartialError) as error:
            return [], error
        return list(capacity_metrics.families(counted)), None

    def _limits(
        self, parsed_args: argparse.Namespace, fleet: Fleet | None
    ) -> tuple[list[Metric] | None, GpustackError | None]:
        """The metrics of the spec's quotas, and why they are missing; None for the metrics if there are no quotas."""
        spec = load_spec(parsed_args.spec) if parsed_args.spec else None
        if spec is None or spec.quotas is None:
            return None, None
        if fleet is None:
            return [], None
        projects = {holder.project for gpu in fleet.gpus for holder in gpu.holders}
        try:
            cloud = LimitsCloud(self.connection(parsed_args))
            known = survey(cloud, wanted(spec), projects, with_use=False)
        except CloudError as error:
            return [], error
        unread = PartialError(f"the limits are partial: {'; '.join(known.gaps)}") if known.gaps else None
        return list(quota_metrics.families(spec, known.shares)), unread


def _partial(fleet: Fleet) -> PartialError | None:
    reasons = dict.fromkeys(f"{gap.source}: {gap.reason}" for gap in fleet.partial)
    if not reasons:
        return None
    remedy = "correct the source; numbers that are uncertain without it are absent until it answers"
    return PartialError(f"the metrics are partial: {'; '.join(reasons)}", remedy=remedy)

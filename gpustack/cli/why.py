"""``gpustack why``: why a flavor finds no host, an instance failed or lacks a GPU, or a host offers none."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpustack.base import silence
from gpustack.base.columns import in_words
from gpustack.base.findings import Finding
from gpustack.base.text import counted, in_lines
from gpustack.cli.cleanup_hosts import add_hypervisors
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, ShowOne, add_exit_code, is_for_machines, ssh_options
from gpustack.cli.gpu import databases_of, scheduler_of
from gpustack.cli.options import Once, add_snapshot, option, positive, read_log, snapshot_hosts
from gpustack.cli.output import Table, table
from gpustack.cli.progress import counting
from gpustack.hosts.facts.collector.text import lines
from gpustack.hosts.facts.gather import Gathered, gather
from gpustack.novadb.hardware import device_specs
from gpustack.operate.capacity.assess import findings
from gpustack.operate.capacity.table import fits
from gpustack.operate.why import host, instance
from gpustack.operate.why.flavor import STEP_COLUMNS, columns
from gpustack.operate.why.links import HOST_COLUMNS
from gpustack.operate.why.read import FlavorAnswer, FlavorQuestion, WhySources, answer
from gpustack.repair.hypervisor import Hypervisors


class WhyCommand(OpenStackCommand):
    """Base class: the sources, the findings, and what is missing.

    :ivar unread: the hosts that could not be read, each with the reason.
    """

    unread: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        group = parser.add_argument_group("other sources")
        option(group, "--spec SPEC", "the spec, for the models behind aliases (default: gpustack.yaml)")
        add_snapshot(group)
        text = "nova.conf of nova-api and nova-scheduler, or its directory, for free devices, NUMA nodes and filters"
        option(group, "--config-file FILE…", text)
        add_exit_code(parser)

    def sources(self, parsed_args: argparse.Namespace, **more: Any) -> WhySources:  # noqa: ANN401
        """The sources of the options."""
        if getattr(parsed_args, "ask_host", False):
            silence.waited(parsed_args.timeout)  # the share of the host
        databases, scheduler = databases_of(parsed_args), scheduler_of(parsed_args)
        more |= {"snapshot": partial(snapshot_hosts, parsed_args, self.report)} if parsed_args.snapshot else {}
        spec = parsed_args.spec or Path("gpustack.yaml")
        return WhySources(spec=spec, databases=databases, scheduler=scheduler, **more)

    def asked(self, parsed_args: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
        """The facts of hosts, with --ask-host, and the device_specs of --config-file; what is not read is noted."""
        more: dict[str, Any] = {}
        if parsed_args.ask_host:
            read = gather(names, ssh=ssh_options(parsed_args)) if names else Gathered(hosts=())
            more["scanned"] = read.hosts
            self.unread = [f"{failed.host}: {failed.error.what}" for failed in read.failures]
        if parsed_args.config_file:
            more["device_specs"] = device_specs(parsed_args.config_file)
        return more

    def close(self, found: Sequence[Finding], gaps: Sequence[str], *, partial: bool) -> None:
        """Report the findings, and what is missing.

        :param partial: whether that is an error.
        """
        self.report_findings(found)
        self.report_partial(gaps, "the answer is" if partial else "")


class WhyFlavorCommand(WhyCommand, Lister):
    """Show how many instances of a flavor fit, and the first step at which Nova refuses each other host.

    Steps have Nova's names: the API, its filters of requests, Placement with the resource class, each filter of the
    scheduler, and the claim of nova-compute. The flavor is that of the cloud. With --host, every step of one host is
    listed. Quotas and aggregates are those of --project. Other filters are a doubt. Server groups need an instance.

    Exit codes: 0 the question was answered. With --exit-code: 3 too few instances fit, 23 a source is missing.
    """

    epilog = """\
gpustack why flavor g1.k4200.8; gpustack why flavor g1.k4200.8 --host gpu07 --config-file /etc/nova/nova.conf;
gpustack why flavor g1.k4200.8 --project research --image ubuntu --count 4 --exit-code -f json"""

    _answer: FlavorAnswer

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="NAME", help="the flavor, by name or id")
        option(parser, "--host HOST", "list every step of this host", action=Once)
        option(parser, "--project P", "the project of the instances, by name or id")
        option(parser, "--image I", "the image, by name or id: its properties and sizes count too")
        option(parser, "--availability-zone Z", "their zone (default: default_schedule_zone, else any)", default="")
        option(parser, "--count N", "the wanted instances", type=positive, default=1)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        named = {name: getattr(parsed_args, name) or "" for name in ("name", "project", "image", "host")}
        question = FlavorQuestion(**named, zone=parsed_args.availability_zone)
        with counting(self, "asking Nova and Placement") as progress:
            sources = self.sources(parsed_args, progress=progress)
            self._answer = answer(self.connection(parsed_args), question, sources)
        self.report(_number(self._answer))
        if self._answer.steps is not None:
            return table(parsed_args, STEP_COLUMNS, self._answer.steps)
        return table(parsed_args, columns(later=self.verbosity > 1), self._answer.causes)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the doubts, the findings and what is missing."""
        found = [*self._answer.findings, *findings([self._answer.capacity])]
        self.close(found, self._answer.gaps, partial=parsed_args.exit_code)
        self.to_do = self._answer.least < parsed_args.count


class WhyInstanceCommand(WhyCommand, ShowOne):
    """Show why an instance failed and whether it fits now, or where each GPU of a running one comes from.

    For a failed instance: Nova's fault, the part of Nova that failed, and the steps of its own request, walked again
    with its own flavor, image, zone and server group. For a running one: its GPUs in the rows of Nova, in Placement and
    in its domain, and the messages of its kernel. Of scheduler hints, same_host and different_host are evaluated.
    PCI devices of ports are a doubt, with --config-file; the bandwidth of ports is not compared.

    Exit codes: 0 the question was answered. With --exit-code: 3 something is broken, 23 a source is missing.
    """

    epilog = """\
gpustack why instance vm1; gpustack why instance vm1 --config-file /etc/nova/nova.conf --ask-host --sudo;
gpustack why instance vm1 --scheduler-log /var/log/nova/nova-scheduler.log -f json"""

    _answer: instance.InstanceAnswer

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="INSTANCE", help="the instance, by name or id")
        option(parser, "--scheduler-log FILE|-…", "quote this log of nova-scheduler or nova-compute")
        option(add_hypervisors(parser), "--ask-host", "ask its host which devices its domain uses")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        logs = parsed_args.scheduler_log
        log = [line for name in logs for line in lines(read_log(name, instance.is_quoted))] if logs else None
        with (
            counting(self, "asking Nova and Placement") as progress,
            Hypervisors(ssh=ssh_options(parsed_args)) as hypervisors,
        ):
            ask = hypervisors.ask if parsed_args.ask_host else None
            sources = self.sources(parsed_args, progress=progress, log=log, ask=ask)
            self._answer = instance.answer(self.connection(parsed_args), parsed_args.name, sources)
        self.report(self._answer.summary)
        fields = self._answer.to_dict()
        if not is_for_machines(parsed_args):
            fields = {name: value for name, value in fields.items() if value and name not in ("causes", "findings")}
        return tuple(fields), tuple(fields.values())

    def text(self, value: object) -> str:
        """A field of the answer for people, with a line for each entry."""
        entries = value if isinstance(value, list) else [value]
        return in_lines(
            ", ".join(f"{key} {in_words(part)}" for key, part in entry.items()) if isinstance(entry, dict) else entry
            for entry in entries
        )

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings, and what is missing."""
        self.close(self._answer.findings, self._answer.gaps, partial=parsed_args.exit_code)
        self.to_do = bool(self._answer.failure) or any(gpu.broken for gpu in self._answer.gpus)


class WhyHostCommand(WhyCommand, Lister):
    """Show the first broken link between each GPU of a host and new instances.

    The links are the hardware, the spec, its verdict, the driver, device_spec, the row of Nova, Placement,
    nova-compute, and whether the GPU is in service, which comes first. The first line counts the GPUs that reach each
    link. A link that no source shows is empty. Name nova.conf of nova-compute with --config-file for device_spec.

    Exit codes: 0 the question was answered. With --exit-code: 3 something is broken, 23 a source is missing.
    """

    epilog = """\
gpustack why host gpu07 --ask-host --sudo; gpustack why host gpu07 --snapshot fleet.json -f json;
gpustack why host gpu07 --ask-host --config-file /etc/nova/nova.conf --config-file gpu07/nova-compute.conf"""

    _answer: host.HostAnswer

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="HOST", help="the host, as Nova names it")
        option(add_hypervisors(parser, "gpustack reads the GPUs of the host over SSH"), "--ask-host", "read its GPUs")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        more = self.asked(parsed_args, [parsed_args.name])
        with counting(self, "asking Nova and Placement") as progress:
            sources = self.sources(parsed_args, progress=progress, **more)
            self._answer = host.answer(self.connection(parsed_args), parsed_args.name, sources)
        self.report(self._answer.summary)
        return table(parsed_args, HOST_COLUMNS, self._answer.gpus)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings, and what is missing."""
        self.close(self._answer.findings, [*self.unread, *self._answer.gaps], partial=parsed_args.exit_code)
        self.to_do = any(gpu.is_broken for gpu in self._answer.gpus)


def _number(found: FlavorAnswer) -> str:
    capacity = found.capacity
    hosts = counted(sum(1 for host in capacity.hosts if host.fits), "host")
    number = fits(capacity)
    more = f"how many more fit is {number}" if number == "unknown" else f"{number} more fit, on {hosts}"
    quota = "" if found.allowed is None else f"; the quota of the project allows {found.allowed}"
    if quota and found.unified is None:
        quota += ", unless limits in Keystone replace it (--config-file of nova-api shows that)"
    return f"{capacity.demand.flavor}: {more}{quota}"

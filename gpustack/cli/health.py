"""``gpustack health``: signs of failing GPUs."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from gpustack.base.errors import GpustackError, UsageError
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import THIS_MACHINE, Lister, add_each, add_exit_code, add_source_options, gather
from gpustack.cli.options import add_fleet_files, option, read_log
from gpustack.cli.output import Table, report_without_gpus, table
from gpustack.cli.progress import counting
from gpustack.hosts.facts.collector.text import lines
from gpustack.hosts.facts.store import load_snapshot
from gpustack.hosts.health import kernel_log
from gpustack.hosts.health.check import Report, check
from gpustack.hosts.health.table import SIGNS, check_log, columns

if TYPE_CHECKING:
    from gpustack.fleet.model import Fleet


class HealthCommand(OpenStackCommand, Lister):
    """Check GPUs for signs of failure: off the bus, PCI Express errors, lost lanes, failed resets, IOMMU faults.

    Reads each host once, over SSH, and changes nothing. Counters and messages count since boot; with --baseline, only
    what is new since then counts, and GPUs that are missing or new are reported. `gpustack scan --save` writes a
    baseline. Also reports cards without the vGPUs that the unit prepares at boot. With --instances, asks Nova and
    Placement too: who has each GPU, how many of its vGPUs are in use, and where they differ from the host. The column
    Health has the codes of the findings, which are printed on stderr. Without findings it is ok, or unknown if the
    host was read without root. With --kernel-log, reads a saved log instead of hosts, and lists its signs.
    """

    epilog = """\
gpustack scan gpu-[01:04] --sudo --save baseline.json; gpustack health gpu-[01:04] --sudo --baseline baseline.json;
gpustack health gpu-01 --sudo --instances;
gpustack health --snapshot hosts.json -f json --exit-code; journalctl -k -b | gpustack health --kernel-log -"""

    nothing = ""  # a host without GPUs is named
    _reports: tuple[Report, ...] = ()
    _fleet: Fleet | None = None
    _refusal: GpustackError | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_source_options(parser, THIS_MACHINE)
        add_each(parser)
        option(parser, "--baseline FILE", "compare with this earlier snapshot (gpustack scan --save)")
        text = "read this saved kernel log (dmesg, journalctl, a console) instead of hosts"
        option(parser, "--kernel-log FILE|-", text)
        add_exit_code(parser)
        group = parser.add_argument_group("use")
        text = "also list the instances on each GPU, and compare the hosts with Nova and Placement"
        option(group, "--instances", text)
        add_fleet_files(group)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        if (parsed_args.config_file or parsed_args.spec) and not parsed_args.instances:
            raise UsageError("only --instances reads these files", remedy="add it, or omit --config-file and --spec")
        if parsed_args.kernel_log is not None:
            return self._saved_log(parsed_args)
        earlier = load_snapshot(parsed_args.baseline) if parsed_args.baseline else ()
        baseline = {host.hostname: host for host in earlier}
        gather(self, parsed_args)
        for host in self._gathered.hosts if parsed_args.baseline else ():
            if host.hostname not in baseline:
                self.report(f"{host.hostname}: not in {parsed_args.baseline}; compared with nothing")
        self._reports = tuple(check(host, baseline.get(host.hostname)) for host in self._gathered.hosts)
        if parsed_args.instances and self._reports:
            self._ask_for_use(parsed_args)
        self._findings = [
            entry
            for report in self._reports
            for entry in (*report.others, *(found for health in report.gpus for found in health.findings))
        ]
        return table(parsed_args, columns(use=parsed_args.instances), [gpu for r in self._reports for gpu in r.gpus])

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Print the totals; report the findings, and the hosts that could not be read."""
        if parsed_args.formatter == "table":
            states = Counter(
                "with findings" if g.findings else g.without_findings for r in self._reports for g in r.gpus
            )
            self.show_total({"host": len(self._reports), "GPU": states.total()}, states)
        judged = zip(self._gathered.hosts, self._reports, strict=True) if self._reports else ()
        report_without_gpus(self, (host for host, report in judged if not report.gpus))
        super().after(parsed_args)
        if self._refusal is not None:
            raise self._refusal
        if self._fleet is not None:
            for note in () if self._fleet.located else self._fleet.notes:
                self.report(note)
            self.report_partial(self._fleet.gaps, "the comparison with Nova and Placement is")

    def _ask_for_use(self, parsed_args: argparse.Namespace) -> None:
        """Join the reports with the use of the GPUs. If the cloud refuses, the signs are printed before its error."""
        from gpustack.cli.gpu import databases_of, given
        from gpustack.fleet.health import with_use
        from gpustack.fleet.read import Detail, read

        hosts = self._gathered.hosts
        known = given(parsed_args, hosts, frozenset(host.hostname for host in hosts))
        try:
            with counting(self, "reading instances") as progress:
                answers = read(
                    lambda: self.connection(parsed_args), Detail.HOLDERS, known, databases_of(parsed_args), progress
                )
        except GpustackError as error:
            self._refusal = error
        else:
            self._reports, self._fleet = with_use(self._reports, answers)

    def _saved_log(self, parsed_args: argparse.Namespace) -> Table:
        if parsed_args.instances or parsed_args.baseline:
            raise UsageError("a saved log has no hosts to compare", remedy="omit --kernel-log, or what is compared")
        self.nothing, path = "no signs in the log", parsed_args.kernel_log
        log = lines(read_log(path, kernel_log.table().mentions))
        signs, self._findings = check_log(log, "standard input" if path == "-" else path)
        return table(parsed_args, SIGNS, signs)

"""``gpustack health``: signs of failing GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CHANGES, UsageError
from gpustack.base.findings import Severity
from gpustack.base.text import printable
from gpustack.cli.common import (
    THIS_MACHINE,
    Lister,
    add_exit_code,
    add_source_options,
    gather,
    is_for_machines,
    read_log,
    tell_failures,
)

if TYPE_CHECKING:
    from gpustack.base.findings import Finding
    from gpustack.hosts.facts.collector.signs import Event
    from gpustack.hosts.facts.gather import Gathered
    from gpustack.hosts.facts.model import Host
    from gpustack.hosts.health.check import Health, Report

_COLUMNS = ("Host", "Address", "Model", "Health", "Fatal", "Nonfatal", "Corrected", "Link", "Power")


class HealthCommand(Lister):
    """Check GPUs for signs of failure: off the bus, PCI Express errors, lost lanes, failed resets, IOMMU faults.

    Reads each host once, over SSH, and changes nothing. Counters and messages count since boot; with --baseline, only
    what is new since then counts, and GPUs that are missing or new are reported. `gpustack scan --save` writes a
    baseline. The column Health is ok, or has the codes of the findings, which are printed on stderr. With --kernel-log,
    reads a saved log instead of hosts, and lists its signs.
    """

    epilog = """\
gpustack scan gpu-[01:04] --sudo --save baseline.json; gpustack health gpu-[01:04] --sudo --baseline baseline.json;
gpustack health --snapshot hosts.json -f json --exit-code; journalctl -k -b | gpustack health --kernel-log -"""

    _gathered: Gathered
    _reports: tuple[Report, ...] = ()
    _of_log: tuple[Finding, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_source_options(parser, THIS_MACHINE)
        parser.add_argument(
            "--baseline", type=Path, metavar="FILE", help="compare with this earlier snapshot (gpustack scan --save)"
        )
        parser.add_argument(
            "--kernel-log",
            metavar="FILE|-",
            help="read this saved kernel log (dmesg, journalctl, a console) instead of hosts",
        )
        add_exit_code(parser, "a GPU has a warning or an error")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        from gpustack.hosts.health.check import check

        if parsed_args.kernel_log is not None:
            return self._saved_log(parsed_args.kernel_log, is_for_machines(parsed_args))
        baseline = self._baseline(parsed_args.baseline)
        self._gathered = gather(self, parsed_args)
        if baseline is not None:
            for host in self._gathered.hosts:
                if host.hostname not in baseline:
                    self.report(f"{host.hostname}: not in {parsed_args.baseline}; compared with nothing")
        self._reports = tuple(check(host, (baseline or {}).get(host.hostname)) for host in self._gathered.hosts)
        judged = [health for report in self._reports for health in report.gpus]
        if is_for_machines(parsed_args):
            return _FIELDS, [tuple(_described(health).values()) for health in judged]
        return _COLUMNS, [tuple(_cells(health)) for health in judged]

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings, and the hosts that could not be read."""
        findings = [*self._of_log]
        for report in self._reports:
            findings += (*report.others, *(entry for health in report.gpus for entry in health.findings))
        self.report_findings(findings)
        if parsed_args.kernel_log is None:
            failures = self._gathered.failures
            tell_failures(self, failures, len(failures) + len(self._gathered.hosts))
        bad = any(entry.severity is not Severity.INFO for entry in findings)
        return CHANGES if parsed_args.exit_code and bad else 0

    def _saved_log(self, path: str, machines: bool) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        from gpustack.hosts.facts.collector.text import lines
        from gpustack.hosts.health.saved_log import check_log

        place = "standard input" if path == "-" else path
        report = check_log(lines(read_log(path)), place)
        self._of_log = report.findings
        signs = [_sign(event) for event in report.signs]
        if machines:
            return _SIGN_FIELDS, [tuple(sign.values()) for sign in signs]
        rows = [[printable(str("-" if cell is None else cell), keep="") for cell in sign.values()] for sign in signs]
        return tuple(name.replace("_", " ").capitalize() for name in _SIGN_FIELDS), [tuple(row) for row in rows]

    def _baseline(self, path: Path | None) -> dict[str, Host] | None:
        from gpustack.hosts.facts.store import load_snapshot

        if path is None:
            return None
        hosts = {host.hostname: host for host in load_snapshot(path)}
        if not hosts:
            raise UsageError(f"{path} has no hosts", remedy="save a baseline: gpustack scan HOST --sudo --save FILE")
        return hosts


_SIGN_FIELDS = ("id", "address", "code", "severity", "count", "first", "last", "earlier_boot", "message")


def _sign(event: Event) -> dict[str, object]:
    """A sign for output."""
    values = (event.sign, event.address, event.code, event.severity, event.count, event.first, event.last)
    return dict(zip(_SIGN_FIELDS, (*values, event.earlier, event.message), strict=True))


_FIELDS = (
    *("host", "address", "model", "findings", "responds", "power_state"),
    *("fatal", "nonfatal", "correctable", "link_width", "max_link_width", "reset_methods", "signs"),
)


def _described(health: Health) -> dict[str, object]:
    main, errors = health.gpu.main, health.errors
    link = main.link
    return {
        "host": health.host.hostname,
        "address": main.address,
        "model": health.gpu.name,
        "findings": [entry.to_dict() for entry in health.findings],
        "responds": main.responds,
        "power_state": main.power_state,
        "fatal": errors.fatal if errors else None,
        "nonfatal": errors.nonfatal if errors else None,
        "correctable": errors.correctable if errors else None,
        "link_width": link.width if link else None,
        "max_link_width": link.max_width if link else None,
        "reset_methods": list(main.reset_methods),
        "signs": [_sign(event) for event in health.signs],
    }


def _cells(health: Health) -> list[str]:
    main, errors = health.gpu.main, health.errors
    counts = (errors.fatal, errors.nonfatal, errors.correctable) if errors else (None, None, None)
    codes = ", ".join(dict.fromkeys(entry.code.value for entry in health.findings)) or "ok"
    width = f"x{main.link.width}" if main.link and main.link.width else "-"
    cells = [health.host.hostname, main.address, health.gpu.name, codes]
    cells += ["-" if count is None else str(count) for count in counts]
    return [printable(cell, keep="") for cell in (*cells, width, main.power_state or "-")]

"""``gpustack capacity``: how many more instances of each flavor fit; with ``--simulate``, a replay of requests."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpustack.base.columns import Column
from gpustack.base.errors import UsageError
from gpustack.base.files import write_atomic
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code, is_for_machines
from gpustack.cli.gpu import databases_of, scheduler_of
from gpustack.cli.options import add_snapshot, number, option, positive, release_of, snapshot_hosts
from gpustack.cli.output import Table, table
from gpustack.cli.progress import counting
from gpustack.offer.flavor.desired import wanted
from gpustack.operate.capacity.assess import State, assess, findings, state
from gpustack.operate.capacity.flavors import demands
from gpustack.operate.capacity.model import Demand, Host
from gpustack.operate.capacity.simulate import OPTIONS, Multipliers, Outcome, Tally, bar, gpus, simulate, svg
from gpustack.operate.capacity.stream import Request, mix_of, poisson, recorded
from gpustack.operate.capacity.table import COLUMNS, HOST_COLUMNS
from gpustack.spec.load import load_spec

_DEFAULT = "default"
_PACKED = "pci_weight_multiplier=10"
_SKIPPED = 5
"""Of random requests, one in so many is not counted: the fleet has to fill up first."""


class _Row(NamedTuple):
    """The outcome of a setting, for all flavors or for one; shares of GPUs are those of all."""

    outcome: Outcome
    flavor: str | None
    tally: Tally


def _of_all(key: str, title: str, share: Callable[[Outcome], float]) -> Column[_Row]:
    """A column of shares of GPUs, which the rows of single flavors lack."""

    def value(row: _Row) -> float | None:
        return None if row.flavor else round(share(row.outcome), 4)

    return Column(key, value, title, lambda row: "" if row.flavor else f"{value(row):.0%}")


SIMULATION_COLUMNS: tuple[Column[_Row], ...] = (
    Column("setting", lambda row: row.outcome.setting, "Setting"),
    Column("flavor", lambda row: row.flavor, "Flavor", lambda row: row.flavor or "all"),
    Column("requests", lambda row: row.tally.requests, "Requests"),
    Column("refused", lambda r: r.tally.refused, "Refused", lambda r: f"{r.tally.refused} ({r.tally.share:.1%})"),
    Column("refused_with_gpus_free", lambda row: row.tally.fragmented, "With GPUs free"),
    _of_all("gpus_in_use", "GPUs in use", lambda outcome: outcome.use),
    _of_all("fragments", "Fragments", lambda outcome: outcome.fragments),
    Column("refused_share", lambda row: round(row.tally.share, 4), "Share", lambda row: bar(row.tally.share)),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the simulation."""
    group = parser.add_argument_group("simulation")
    option(
        group,
        "--simulate MIX",
        "replay requests: a mix of flavors with their parts, such as g1:50,g8:10, or a CSV file with the columns "
        "time, flavor and life",
    )
    option(
        group,
        "--set OPTION=VALUE…",
        "compare this setting of [filter_scheduler], or several separated by commas: ram_weight_multiplier, "
        f"cpu_…, disk_…, pci_… (default: Nova's defaults, and {_PACKED})",
    )
    option(group, "--empty", "replay as if there were no instances yet")
    option(
        group,
        "--load PART",
        "GPUs that a mix would use without refusals, as a part of those in the fleet",
        type=number(float, lambda share: 0 < share <= 100, "must be more than 0"),
        default=0.7,
    )
    option(group, "--requests N", "replay N requests of a mix", type=positive, default=3000)
    option(group, "--seed N", "seed of a mix", type=int, default=1)
    option(group, "--plot FILE", "also draw the refused requests as SVG")


def check_options(parsed_args: argparse.Namespace) -> None:
    """Check that the options of the simulation are used with it.

    :raises UsageError: if they are not.
    """
    for name in ("set", "empty", "plot"):
        if getattr(parsed_args, name) and not parsed_args.simulate:
            raise UsageError(f"--{name} needs --simulate", remedy="add --simulate with a mix of flavors")


def simulated(parsed_args: argparse.Namespace, hosts: Sequence[Host], demands: Sequence[Demand]) -> Table:
    """Replay the requests for each setting; one row for each flavor and setting.

    :raises UsageError: for a mix, a file or a setting that is unusable.
    """
    try:
        settings = _settings(parsed_args.set)
        requests, skipped = _requests(parsed_args, hosts, {demand.flavor: demand for demand in demands})
    except ValueError as error:
        raise UsageError(str(error)) from error
    outcomes = [simulate(hosts, requests, name, values, skipped=skipped) for name, values in settings.items()]
    if parsed_args.plot:
        write_atomic(parsed_args.plot, svg(outcomes), mode=0o644)
    rows = [
        _Row(outcome, flavor, tally)
        for outcome in outcomes
        for flavor, tally in ((None, outcome.all), *outcome.tallies.items())
    ]
    return table(parsed_args, SIMULATION_COLUMNS, rows)


def _settings(texts: Sequence[str] | None) -> dict[str, Multipliers]:
    settings = {_DEFAULT: Multipliers()}
    for text in texts or [_PACKED]:
        values: dict[str, float] = {}
        for part in text.split(","):
            option, _, value = part.strip().partition("=")
            if option not in OPTIONS:
                raise ValueError(f"{option!r} is no option of the simulation; expected {', '.join(OPTIONS)}")
            values[option.removesuffix("_weight_multiplier")] = _multiplier(option, value)
        settings[text] = Multipliers(**values)
    return settings


def _multiplier(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (option == "pci_weight_multiplier" and value < 0):
        least = " of at least 0" if option == "pci_weight_multiplier" else ""
        raise ValueError(f"{option}={text}: expected a number{least}, as in nova.conf")
    return value


def _requests(
    parsed_args: argparse.Namespace, hosts: Sequence[Host], demands: Mapping[str, Demand]
) -> tuple[list[Request], int]:
    """The requests, and the number of first ones that are not counted."""
    path = Path(parsed_args.simulate)
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as lines:
            return recorded(lines, demands, str(path)), 0
    mix = mix_of(parsed_args.simulate)
    if unknown := mix.keys() - demands.keys():
        raise ValueError(f"the spec has no flavor {sorted(unknown)[0]!r}; its flavors: {', '.join(demands)}")
    if not (total := gpus(hosts, [demands[name] for name in mix])):
        raise ValueError("no GPU of these flavors is free; --empty replays as if there were no instances")
    count = parsed_args.requests
    stream = poisson(mix, demands, held=parsed_args.load * total, life=100, number=count, seed=parsed_args.seed)
    return stream, count // _SKIPPED


class CapacityCommand(OpenStackCommand, Lister):
    """Count how many more instances of each flavor fit, and name the reasons against more.

    Each flavor is counted as if no other were booted. A number that is not certain is shown with `at least` or
    `at most`, with the reason below. Without PCI in Placement, free GPUs come from the databases (--config-file) or
    from a snapshot. NUMA nodes with room are known from the databases only. If a source does not answer, the exit code
    is 23.

    With --simulate, it replays requests on the free GPUs, or with --empty on all GPUs, with the weights of Nova's
    scheduler, and compares settings of [filter_scheduler]: the requests that are refused, and the GPUs in fragments.
    """

    epilog = """\
gpustack capacity gpustack.yaml; gpustack capacity gpustack.yaml --hosts --flavor g1.k4200.8;
gpustack capacity gpustack.yaml --config-file /etc/nova/nova.conf -f json;
gpustack capacity gpustack.yaml --empty --simulate g1.k4200.1:50,g1.k4200.8:10 --load 0.7"""

    _gaps: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        option(parser, "--flavor NAME…", "count only this flavor of the spec")
        option(parser, "--hosts", "list each host of each flavor")
        text = "count only hosts of this zone (default: default_schedule_zone of --config-file, else all)"
        option(parser, "--availability-zone ZONE", text, default="")
        option(parser, "--release NAME", "the flavors of this release of Nova (default: that of the spec)")
        group = parser.add_argument_group("other sources")
        add_snapshot(group, ", for sizes `auto` and the GPUs of hosts")
        option(
            group,
            "--config-file FILE…",
            "nova.conf of nova-api and nova-scheduler, or its directory: its cell databases have the free devices "
            "and NUMA nodes, and it shows the filters",
        )
        add_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        check_options(parsed_args)
        state, demands = self._read(parsed_args)
        if parsed_args.simulate:
            return simulated(parsed_args, state.hosts, demands)
        with counting(self, "asking Placement") as progress:
            counted = [assess(self.connection(parsed_args), state, demand, progress) for demand in demands]
        self._findings = [*self._findings, *findings(counted)]
        if parsed_args.hosts and not is_for_machines(parsed_args):
            return table(parsed_args, HOST_COLUMNS, [(entry.demand, host) for entry in counted for host in entry.hosts])
        return table(parsed_args, COLUMNS, counted)

    def _read(self, parsed_args: argparse.Namespace) -> tuple[State, list[Demand]]:
        """The hosts, and the flavors to count."""
        hosts = snapshot_hosts(parsed_args, self.report)
        spec = load_spec(parsed_args.spec, hosts)
        desired = wanted(spec, release=release_of(parsed_args.release, spec), hosts=hosts)
        self._findings = desired.findings
        names = parsed_args.flavor or [flavor.name for flavor in desired.flavors]
        by_name = {flavor.name: flavor for flavor in desired.flavors}
        for name in names:
            if name not in by_name:
                remedy = f"its flavors: {', '.join(by_name) or 'none'}"
                raise UsageError(f"the spec has no flavor {name!r}", remedy=remedy)
        cloud = self.connection(parsed_args)
        scheduler = scheduler_of(parsed_args)
        with counting(self, "reading instances") as progress:
            known = state(
                cloud,
                spec,
                facts=hosts,
                databases=databases_of(parsed_args),
                scheduler=scheduler,
                zone=parsed_args.availability_zone,
                empty=parsed_args.empty,
                progress=progress,
            )
        self._gaps = known.gaps
        chosen = [by_name[name] for name in dict.fromkeys(names)]
        found, differences = demands(spec, chosen, known.flavors, scheduler)
        self._findings = [*self._findings, *differences]
        return known, found

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings, and what is missing."""
        super().after(parsed_args)
        self.report_partial(self._gaps, "the numbers are")

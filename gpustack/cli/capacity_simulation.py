"""``gpustack capacity --simulate``: its options, and the table."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpustack.base.columns import Column
from gpustack.base.errors import UsageError
from gpustack.base.files import write_atomic
from gpustack.cli.options import number, option, positive
from gpustack.cli.output import Table, table
from gpustack.operate.capacity.model import Demand, Host
from gpustack.operate.capacity.simulate import Outcome, Tally, bar, gpus, simulate, svg
from gpustack.operate.capacity.stream import Request, mix_of, poisson, recorded
from gpustack.operate.capacity.weights import OPTIONS, Multipliers

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


COLUMNS: tuple[Column[_Row], ...] = (
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
        f"cpu_…, disk_…, pci_…; can be repeated (default: Nova's defaults, and {_PACKED})",
    )
    option(group, "--empty", "replay as if there were no instances yet")
    option(
        group,
        "--load PART",
        "GPUs that a mix would use without refusals, as a part of those in the fleet (default: %(default)s)",
        type=number(float, lambda share: 0 < share <= 100, "must be more than 0"),
        default=0.7,
    )
    option(group, "--requests N", "replay N requests of a mix (default: %(default)s)", type=positive, default=3000)
    option(group, "--seed N", "seed of a mix (default: %(default)s)", type=int, default=1)
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
    return table(parsed_args, COLUMNS, rows)


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
    total = gpus(hosts, [demands[name] for name in mix])
    if not total:
        raise ValueError("no GPU of these flavors is free; --empty replays as if there were no instances")
    count = parsed_args.requests
    stream = poisson(mix, demands, gpus=total, load=parsed_args.load, life=100, number=count, seed=parsed_args.seed)
    return stream, count // _SKIPPED

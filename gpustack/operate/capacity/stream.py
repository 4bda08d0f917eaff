"""Streams of requests: random ones of a mix of flavors, or those of a CSV file."""

import csv
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpustack.operate.capacity.model import Demand


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for an instance.

    :ivar time: when it arrives.
    :ivar life: how long the instance exists, in the same unit; infinite if it is never deleted.
    """

    time: float
    demand: Demand
    life: float


def mix_of(text: str) -> dict[str, float]:
    """Parse ``g1:50,g8:10``: the parts of flavors in a mix.

    :raises ValueError: if it is not a mix.
    """
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().rpartition(":")
        try:
            share = float(weight)
        except ValueError:
            share = math.nan
        if not name or not 0 < share < math.inf or name in mix:
            raise ValueError(f"{part.strip()!r} is not FLAVOR:PART of a mix such as g1:50,g8:10")
        mix[name] = share
    return mix


def poisson(
    mix: Mapping[str, float], demands: Mapping[str, Demand], *, held: float, life: float, number: int, seed: int
) -> list[Request]:
    """Random requests: exponential times between them, and exponential lives.

    :param held: the GPUs that the requests would hold on average if none were refused.
    :param life: the mean life of an instance.
    """
    names, parts = list(mix), list(mix.values())
    mean = sum(demands[name].count * part for name, part in mix.items()) / sum(parts)
    rate = held / (mean * life)
    source = random.Random(seed)  # noqa: S311 - a simulation, which must be repeatable
    time = 0.0
    requests = []
    for _number in range(number):
        time += source.expovariate(rate)
        (name,) = source.choices(names, parts)
        requests.append(Request(time=time, demand=demands[name], life=source.expovariate(1 / life)))
    return requests


def recorded(lines: Iterable[str], demands: Mapping[str, Demand], where: str) -> list[Request]:
    """The requests of a CSV file with the columns time, flavor and life; in the order of their times.

    :param where: the name of the file, for messages.
    :raises ValueError: for a malformed line.
    """
    requests = []
    reader = csv.DictReader(lines)
    if missing := {"time", "flavor", "life"} - set(reader.fieldnames or ()):
        raise ValueError(f"{where}: there is no column {sorted(missing)[0]}; expected time, flavor and life")
    for entry in reader:
        place = f"{where}:{reader.line_num}"
        name = entry["flavor"]
        if name not in demands:
            raise ValueError(f"{place}: the spec has no flavor {name!r}; its flavors: {', '.join(demands)}")
        time, life = _number(entry["time"], place, "time"), _number(entry["life"] or "inf", place, "life")
        requests.append(Request(time=time, demand=demands[name], life=life))
    return sorted(requests, key=lambda request: request.time)


def _number(text: str | None, place: str, column: str) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < 0 or (column == "time" and math.isinf(number)):
        raise ValueError(f"{place}: the {column} {text!r} is no number of at least 0")
    return number


def flavors(requests: Sequence[Request]) -> list[Demand]:
    """The flavors of a stream, smallest first."""
    by_name = {request.demand.flavor: request.demand for request in requests}
    return sorted(by_name.values(), key=lambda demand: (demand.count, demand.flavor))

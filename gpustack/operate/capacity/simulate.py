"""Replay a stream of requests on a fleet, with the weights of Nova's scheduler. Pure.

Instances get the host with the largest weight of those on which they fit, and hold their GPUs until their life ends. A
refused request is not repeated.

Each weigher's values are scaled to 0…1 over the hosts that fit, multiplied, and added (nova/weights.py). The weighers
for memory, processors and disk scale from zero, the one for PCI devices from its least value. Nova's other weighers are
zero or equal for all hosts, unless instances are being built, a build failed, or the versions of hypervisors differ.

Bars of refused requests: as text, and as SVG. Pure.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.model import Demand, Host
from gpustack.operate.capacity.room import Claim, Room
from gpustack.operate.capacity.stream import Request, flavors
from gpustack.operate.capacity.walk import walk

_ASSUMED = Scheduler()
_MOST_DEVICES = 100
"""``MAX_DEVS`` of nova/scheduler/weights/pci.py."""
OPTIONS = ("ram_weight_multiplier", "cpu_weight_multiplier", "disk_weight_multiplier", "pci_weight_multiplier")


@dataclass(frozen=True, kw_only=True)
class Multipliers:
    """The multipliers of nova.conf, ``[filter_scheduler]``, with Nova's defaults."""

    ram: float = 1.0
    cpu: float = 1.0
    disk: float = 1.0
    pci: float = 1.0


def weights(hosts: Sequence[Room], multipliers: Multipliers) -> list[float]:
    """The weight of each host; the largest one gets the instance."""
    if len(hosts) < 2:
        return [0.0] * len(hosts)
    columns = (
        (multipliers.ram, _scaled([max(host.ram, 0) for host in hosts], least=0)),
        (multipliers.cpu, _scaled([max(host.cpus, 0) for host in hosts], least=0)),
        (multipliers.disk, _scaled([max(host.disk, 0) for host in hosts], least=0)),
        (multipliers.pci, _scaled([_MOST_DEVICES - min(host.free, _MOST_DEVICES - 1) for host in hosts])),
    )
    return [sum(parts) for parts in zip(*([m * value for value in column] for m, column in columns), strict=True)]


def _scaled(values: Sequence[float], least: float | None = None) -> Iterable[float]:
    low, high = min(values) if least is None else least, max(values)
    return [0.0] * len(values) if low == high else [(value - low) / (high - low) for value in values]


def chosen(hosts: Sequence[Room], multipliers: Multipliers) -> int:
    """The index of the host with the largest weight; of several, the first (``host_subset_size = 1``)."""
    weighed = weights(hosts, multipliers)
    return max(range(len(weighed)), key=weighed.__getitem__)


@dataclass(kw_only=True)
class Tally:
    """The requests of one flavor.

    :ivar fragmented: those of the refused requests for which the fleet had enough free GPUs.
    """

    requests: int = 0
    refused: int = 0
    fragmented: int = 0

    @property
    def share(self) -> float:
        """The part of requests that is refused."""
        return self.refused / self.requests if self.requests else 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a stream for one setting.

    :ivar use: the mean part of the GPUs that instances have.
    :ivar fragments: the mean part of the free GPUs that are on hosts with too few for the largest flavor.
    """

    setting: str
    tallies: dict[str, Tally]
    use: float
    fragments: float

    @property
    def all(self) -> Tally:
        """The requests of all flavors."""
        entries = self.tallies.values()
        return Tally(
            requests=sum(entry.requests for entry in entries),
            refused=sum(entry.refused for entry in entries),
            fragmented=sum(entry.fragmented for entry in entries),
        )


def simulate(
    hosts: Sequence[Host], requests: Sequence[Request], setting: str, multipliers: Multipliers, *, skipped: int = 0
) -> Outcome:
    """Replay requests.

    :param setting: the name of the setting.
    :param skipped: the number of first requests that are not counted, until the fleet has filled up.
    """
    since = requests[skipped].time if skipped < len(requests) else 0.0
    fleet = _Fleet([Room(host) for host in hosts if not host.closed], requests, since)
    tallies: dict[str, Tally] = {}
    for number, request in enumerate(requests):
        fleet.advance(request.time, is_counted=number > skipped)
        refused = fleet.boot(request, multipliers)
        if number < skipped:
            continue
        tally = tallies.setdefault(request.demand.flavor, Tally())
        tally.requests += 1
        tally.refused += refused
        tally.fragmented += refused and fleet.free >= request.demand.count
    by_size = {demand.flavor: tallies[demand.flavor] for demand in flavors(requests) if demand.flavor in tallies}
    return Outcome(setting=setting, tallies=by_size, use=fleet.mean(1), fragments=fleet.mean(2))


class _Fleet:
    """The hosts, and the instances until the end of their lives.

    :ivar spans: how long each state lasted since ``since``, with the GPUs in use and those in fragments.
    """

    def __init__(self, rooms: list[Room], requests: Sequence[Request], since: float) -> None:
        self.rooms, self.since = rooms, since
        self.spans: list[tuple[float, float, float]] = []
        self.largest = max((request.demand.count for request in requests), default=0)
        aliases = frozenset[str]().union(*(request.demand.aliases for request in requests))
        self.counts = [room.count(aliases) for room in rooms]
        self.free = self.total = sum(self.counts)
        self.ends: list[tuple[float, int, int, Claim]] = []
        self.started = 0

    def advance(self, time: float, *, is_counted: bool) -> None:
        """Delete the instances whose lives have ended."""
        while self.ends and self.ends[0][0] <= time:
            end, _started, index, taken = heapq.heappop(self.ends)
            self._measure(end, is_counted=is_counted)
            self.rooms[index].apply(taken, sign=1)
            self._changed(index, taken.demand.count)
        self._measure(time, is_counted=is_counted)

    def boot(self, request: Request, multipliers: Multipliers) -> bool:
        """Boot an instance; return whether it is refused."""
        large = [index for index, count in enumerate(self.counts) if count >= request.demand.count]
        claims = ((index, walk(self.rooms[index], request.demand, _ASSUMED).claim) for index in large)
        if not (fitting := [(index, claim) for index, claim in claims if claim is not None]):
            return True
        index, taken = fitting[chosen([self.rooms[index] for index, _taken in fitting], multipliers)]
        self.rooms[index].apply(taken)
        self._changed(index, -request.demand.count)
        self.started += 1
        heapq.heappush(self.ends, (request.time + request.life, self.started, index, taken))
        return False

    def _changed(self, index: int, count: int) -> None:
        self.counts[index] += count
        self.free += count

    def mean(self, column: int) -> float:
        """The mean of a column of the spans over time."""
        total = sum(span[0] for span in self.spans)
        return sum(span[0] * span[column] for span in self.spans) / total if total else 0.0

    def _measure(self, time: float, *, is_counted: bool) -> None:
        if is_counted and self.total:
            small = sum(count for count in self.counts if count < self.largest)
            use, fragments = 1 - self.free / self.total, small / self.free if self.free else 0.0
            self.spans.append((time - self.since, use, fragments))
            self.since = time


def gpus(hosts: Sequence[Host], demands: Sequence[Demand]) -> int:
    """The free GPUs of open hosts that the flavors can get."""
    aliases = frozenset[str]().union(*(demand.aliases for demand in demands))
    return sum(host.count(aliases) for host in hosts if not host.closed)


_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR, _GAP, _LEFT, _SPAN = 22, 6, 260, 400
_COLORS = ("#b3261e", "#1b6e3c", "#2457a6", "#7a4fa3", "#8a6d1b")


def bar(share: float, width: int = _WIDTH) -> str:
    """A bar of blocks for a part of 1."""
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def svg(outcomes: Sequence[Outcome]) -> str:
    """A picture with one bar for each flavor and setting: the part of its requests that is refused."""
    names = list(dict.fromkeys(flavor for outcome in outcomes for flavor in outcome.tallies))
    parts = [_text(10, 24, "Refused requests", bold=True)]
    top = 54
    for flavor in names:
        parts.append(_text(10, top, flavor, bold=True))
        top += 8
        for number, outcome in enumerate(outcomes):
            share = outcome.tallies[flavor].share if flavor in outcome.tallies else 0.0
            color = _COLORS[number % len(_COLORS)]
            parts.append(_text(20, top + _BAR - 6, outcome.setting))
            text = f'<rect x="{_LEFT}" y="{top}" width="{max(share * _SPAN, 1):.1f}" height="{_BAR}" fill="{color}"/>'
            parts.append(text)
            parts.append(_text(_LEFT + share * _SPAN + 8, top + _BAR - 6, f"{share:.1%}"))
            top += _BAR + _GAP
        top += 26
    width = _LEFT + _SPAN + 80
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}"'
        ' font-family="sans-serif" font-size="13">\n<title>Refused requests</title>\n'
        f'<rect width="{width}" height="{top}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{weight} fill="#1c1c1c">{escape(text)}</text>'

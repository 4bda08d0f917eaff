"""Order hosts as Nova's scheduler does: its weighers for memory, processors, disk and PCI devices. Pure.

Each weigher's values are scaled to 0…1 over the hosts that fit, multiplied, and added (nova/weights.py). The weighers
for memory, processors and disk scale from zero, the one for PCI devices from its least value. Nova's other weighers are
zero or equal for all hosts, unless instances are being built, a build failed, or the versions of hypervisors differ.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

_MOST_DEVICES = 100
"""``MAX_DEVS`` of nova/scheduler/weights/pci.py."""
OPTIONS = ("ram_weight_multiplier", "cpu_weight_multiplier", "disk_weight_multiplier", "pci_weight_multiplier")


class Weighed(Protocol):
    """A host: free memory and disk in MiB, free processors, the number of free PCI devices."""

    ram: float
    cpus: float
    disk: float
    free: int


@dataclass(frozen=True, kw_only=True)
class Multipliers:
    """The multipliers of nova.conf, ``[filter_scheduler]``, with Nova's defaults."""

    ram: float = 1.0
    cpu: float = 1.0
    disk: float = 1.0
    pci: float = 1.0


def weights(hosts: Sequence[Weighed], multipliers: Multipliers) -> list[float]:
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


def chosen(hosts: Sequence[Weighed], multipliers: Multipliers) -> int:
    """The index of the host with the largest weight; of several, the first (``host_subset_size = 1``)."""
    weighed = weights(hosts, multipliers)
    return max(range(len(weighed)), key=weighed.__getitem__)

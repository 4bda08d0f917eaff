"""Free GPUs on hosts where no new instance starts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpustack.base.text import listed
from gpustack.fleet.model import Fleet


def noted(fleet: Fleet) -> Fleet:
    """Return the fleet with notes on the free GPUs of hosts whose nova-compute is disabled or down."""
    return replace(fleet, notes=(*fleet.notes, *_notes(fleet)))


def _notes(fleet: Fleet) -> Iterator[str]:
    free: Counter[str] = Counter()
    for gpu in fleet.gpus:
        free[gpu.host] += gpu.free
    for count in fleet.counts:
        free[count.host] += 0 if count.per_gpu else count.free or 0
    services = {gpu.host: gpu.service for gpu in fleet.gpus}
    for state in ("disabled", "down"):
        hosts = sorted(host for host, number in free.items() if number and services.get(host) == state)
        if hosts:
            yield (
                f"free GPUs on hosts whose nova-compute is {state}, which no new instance gets:"
                f" {sum(free[host] for host in hosts)} on {listed(hosts, 8)}"
            )

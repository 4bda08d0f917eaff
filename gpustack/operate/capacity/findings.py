"""Findings about capacities. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.operate.capacity.model import Capacity, Reason


def findings(capacities: Iterable[Capacity]) -> Iterator[Finding]:
    """Yield the findings about the capacities of flavors."""
    for entry in capacities:
        name, count = entry.demand.flavor, entry.demand.count
        fragments = sum(limit.gpus for limit in entry.limits if limit.reason is Reason.FRAGMENTS)
        if entry.most == 0 and fragments >= count > 1:
            yield finding(Code.GPUS_IN_FRAGMENTS, place=name, gpus=fragments, count=count)
        for doubt in entry.doubts:
            yield finding(Code.CAPACITY_UNCERTAIN, place=name, doubt=doubt)

"""Free rows of ``pci_devices`` that Placement lacks. Pure.

If Nova schedules by Placement's devices (``[filter_scheduler] pci_in_placement``), no new instance gets such a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.base.hostnames import key
from gpustack.base.text import listed as names
from gpustack.fleet.answers import Row
from gpustack.fleet.index import Index
from gpustack.fleet.model import Source


def is_missing(index: Index, row: Row) -> bool:
    """Whether Placement has devices of the row's compute node, but not this one."""
    reporting = index.answers.models.scheduled is not False and key(row.node) in index.reporting
    return reporting and (key(row.node), row.parent or row.address) not in index.devices


def is_unreported(index: Index, row: Row) -> bool:
    """Whether the scheduler takes only devices of Placement, and the row's compute node reports none."""
    return bool(index.answers.models.scheduled) and _answered(index) and key(row.node) not in index.reporting


def _answered(index: Index) -> bool:
    return index.answers.devices is not None or all(gap.source is not Source.PLACEMENT for gap in index.answers.gaps)


def findings(index: Index) -> Iterator[Finding]:
    """One finding for each GPU that is missing, and one for each host that reports none."""
    unreported: dict[str, int] = {}
    for row in free_rows(index):
        if is_missing(index, row):
            yield finding(Code.ROW_WITHOUT_DEVICE, place=f"{row.host} {row.address}", host=row.host)
        elif is_unreported(index, row):
            unreported[row.host] = unreported.get(row.host, 0) + 1
    for host, count in unreported.items():
        yield finding(Code.HOST_WITHOUT_REPORT, place=host, count=count, host=host)


def note(index: Index) -> Iterator[str]:
    """A note on hosts that report no devices while others do, if it is unknown how Nova schedules."""
    if index.answers.models.scheduled is not None or not index.reporting:
        return
    if hosts := sorted({row.host for row in free_rows(index) if key(row.node) not in index.reporting}):
        yield (
            f"free by their rows, though their hosts report no devices to Placement: GPUs of {names(hosts, 8)};"
            " with [filter_scheduler] pci_in_placement, no new instance gets them"
        )


def free_rows(index: Index) -> Iterator[Row]:
    """The rows of GPUs that Nova has as free. A physical function with virtual functions is not one of them."""
    parents = {(key(row.node), row.parent) for row in index.rows.values() if row.parent}
    for spot, row in index.rows.items():
        if row.status != "available" or spot in parents:
            continue
        if index.is_gpu(row.node, row.address, (row.vendor_id, row.product_id), virtual=row.dev_type == "type-VF"):
            yield row

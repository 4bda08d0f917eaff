"""The page of ``gpustack report`` for 1,000 and 10,000 GPUs: its size, time, and the memory that writing it takes.

Run it with ``python bench/report.py``. The larger page must stay below 5 MB. Memory is the peak while the page is
written, beyond the fleet itself, without and with the whole page in memory: the first must stay below a quarter of the
second.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpustack.base.files import write_atomic
from gpustack.operate.report.page import PAGE, Report, parts
from support.fleets import fleet_of

MEGABYTE = 1_000_000
MOST_BYTES = 5 * MEGABYTE


def peak(action: Callable[[], object]) -> int:
    """The memory that an action takes at most, in bytes."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _joined(report: Report) -> str:
    return "".join(parts(report))


def _streamed(report: Report, path: Path) -> None:
    write_atomic(path, parts(report), mode=0o644)


def main() -> None:
    """Print the figures, and compare them with the limits."""
    with tempfile.TemporaryDirectory() as directory:
        for hosts in (125, 1250):
            report = Report(fleet=fleet_of(hosts), at=datetime.now(UTC).replace(tzinfo=None))
            begun = time.perf_counter()
            _streamed(report, path := Path(directory) / PAGE)  # also warms up the template
            seconds = time.perf_counter() - begun
            size = path.stat().st_size
            streamed = peak(partial(_streamed, report, path))
            joined = peak(partial(_joined, report))
            print(
                f"{hosts * 8} GPUs: {size / MEGABYTE:.2f} MB, {seconds:.1f} s,"
                f" memory {streamed / MEGABYTE:.1f} MB, complete page {joined / MEGABYTE:.1f} MB"
            )
    limits.end(limits.check("report.bytes", size / MOST_BYTES), limits.check("report.memory", streamed / joined))


if __name__ == "__main__":
    main()

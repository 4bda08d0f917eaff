"""Write the number of verdicts as a textfile for Prometheus."""

import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import Metric

from gpustack.base.prometheus import Page, gauge
from gpustack.repair.plan import CleanupPlan


def write(path: Path, plan: CleanupPlan) -> None:
    """Write the counts of a plan."""
    counts: dict[tuple[str, ...], float] = {key: float(count) for key, count in sorted(plan.counts().items())}
    text = "Verdicts on rows of pci_devices, by cell, class and status."
    verdicts = gauge("gpustack_cleanup_verdicts", text, ("cell", "class", "status"), counts)
    waiting = gauge(
        "gpustack_cleanup_task_age_seconds",
        "Time since the last write of work without progress that protects rows, by cell, host, instance and task.",
        ("cell", "host", "instance", "task"),
        {
            (verdict.cell, verdict.host, work.instance, work.task): work.age.total_seconds()
            for verdict in plan.verdicts
            if (work := verdict.waiting) is not None
        },
    )
    Page([verdicts, waiting, *_state(complete=not plan.unread and plan.unasked is None)]).write(path)


def write_failure(path: Path) -> None:
    """Write a state in which nothing could be read."""
    Page(_state(complete=False)).write(path)


def _state(*, complete: bool) -> Iterator[Metric]:
    text = "Whether every cell, and Placement if it was named, could be read the last time."
    yield gauge("gpustack_cleanup_up", text, samples={(): complete})
    text = "Time of the last attempt to read the cells."
    yield gauge("gpustack_cleanup_last_run_timestamp_seconds", text, samples={(): round(time.time())})

"""Write the number of verdicts as a textfile for node_exporter (Prometheus text exposition format 0.0.4)."""

from __future__ import annotations

import time
from pathlib import Path

from gpustack.cleanup.plan import CleanupPlan
from gpustack.files import write_atomic

_HEAD = """\
# HELP gpustack_cleanup_verdicts Verdicts on rows of pci_devices, by cell, class and status.
# TYPE gpustack_cleanup_verdicts gauge
"""
_STATE = """\
# HELP gpustack_cleanup_up Whether every cell, and Placement where it was named, could be read the last time.
# TYPE gpustack_cleanup_up gauge
gpustack_cleanup_up {up}
# HELP gpustack_cleanup_last_run_timestamp_seconds When the cells were read the last time.
# TYPE gpustack_cleanup_last_run_timestamp_seconds gauge
gpustack_cleanup_last_run_timestamp_seconds {now:.0f}
"""


def write(path: Path, plan: CleanupPlan) -> None:
    """Write the counts of a plan. The file is replaced atomically, so a scrape never reads half of it."""
    lines = [
        f'gpustack_cleanup_verdicts{{cell="{_escape(cell)}",class="{klass}",status="{status}"}} {count}\n'
        for (cell, klass, status), count in sorted(plan.counts().items())
    ]
    state = _STATE.format(up=int(not plan.unread and plan.unasked is None), now=time.time())
    write_atomic(path, _HEAD + "".join(lines) + state)


def write_failure(path: Path) -> None:
    """Write a state in which nothing could be read."""
    write_atomic(path, _STATE.format(up=0, now=time.time()))


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

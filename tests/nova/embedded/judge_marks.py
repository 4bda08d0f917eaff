"""Run by the Python of a release: does a thread keep its mark while native threads ask for theirs?

Prints how many looks found no mark.
"""

from __future__ import annotations

import eventlet

eventlet.monkey_patch()

import importlib.util  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from eventlet import patcher  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_context import context  # noqa: E402


def main(path: str) -> None:
    """Load ``marks.py``, install it, and look, beside two native threads that look as well."""
    spec = importlib.util.spec_from_file_location("marks", Path(path))
    marks = importlib.util.module_from_spec(spec)
    sys.modules["marks"] = marks
    spec.loader.exec_module(marks)
    marks.install(cfg.ConfigOpts())
    sys.setswitchinterval(1e-5)
    finished: list[bool] = []

    def look() -> None:
        while not finished:
            marks.current()

    threads = [patcher.original("threading").Thread(target=look, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    mark = marks.Mark("compute", "gpu1", "cell1", None)
    mark.put_on(context.RequestContext())
    lost = 0
    end = time.monotonic() + 3
    while time.monotonic() < end:
        lost += marks.current() is not mark
    finished.append(True)
    print(lost)


main(sys.argv[1])

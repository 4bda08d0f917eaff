"""``python …/embedded/inside SERVICE DESCRIPTION.json``: serve until stopped, or until stdin is closed.

SERVICE is ``nova`` (all of Nova), ``keystone``, or ``wsgi`` (any one WSGI application).
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import unittest.mock
from pathlib import Path

_PACKAGE = "gpustack_inside"


def _die_with_parent() -> None:
    """End when stdin is closed: the parent process holds the other end, and may be killed.

    Call this before eventlet replaces threads and reading.
    """
    read, leave = os.read, os._exit

    def watch() -> None:
        while read(0, 1):
            pass
        leave(0)

    threading.Thread(target=watch, daemon=True).start()


def _load_package() -> None:
    """Import this directory as a package without adding it (or gpustack) to the path of Nova's Python."""
    directory = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != directory]
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    if spec is None or spec.loader is None:
        raise SystemExit(f"{directory} is not whole")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = module
    spec.loader.exec_module(module)


def main() -> None:
    """Serve."""
    gc.disable()  # a quarter of the time of a start; http.collect_garbage() ends it
    service, path = sys.argv[1:3]
    _load_package()
    description = json.loads(Path(path).read_text(encoding="utf-8"))
    del sys.argv[1:]  # OpenStack's code parses it too
    leave = os._exit
    signal.signal(signal.SIGTERM, lambda number, frame: leave(0))
    _die_with_parent()
    if service == "nova":
        sys.modules["mock"] = unittest.mock  # Yoga's fixtures import the backport of it
        # Replaces threads, locks and thread-local data by eventlet's before other code of Nova imports them;
        # the oldest releases do it on import.
        getattr(importlib.import_module("nova.monkey_patch"), "patch", lambda: None)()
    module = {"nova": "nova_server", "keystone": "identity", "wsgi": "wsgi"}[service]
    importlib.import_module(f"{_PACKAGE}.{module}").serve(description)


if __name__ == "__main__":
    main()

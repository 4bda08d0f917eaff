# mypy: disable-error-code="import-not-found,import-untyped,no-any-return"
"""Serve WSGI applications on ports of 127.0.0.1."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable
from typing import Any

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


_READING = ("GET", "HEAD", "OPTIONS")


def one_writer(app: App) -> App:
    """Serialise the requests to ``app`` that may write.

    A SQLite transaction that reads first and then writes fails at once ("database is locked") if another one has
    written meanwhile, and the services do not retry. Read requests still run concurrently.
    """
    lock = threading.Lock()

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _READING:
            return app(environ, start_response)
        with lock:
            return app(environ, start_response)

    return wrapped


def collect_garbage() -> None:
    """Collect garbage from now on, except what the start has left, which stays."""
    gc.freeze()
    gc.enable()


def run(app: App, port: int, *, threads: int = 8) -> None:
    """Serve ``app`` on ``port``; does not return."""
    import waitress

    # Warnings about the task queue depth are noise here; requests beyond `threads` simply wait.
    server = waitress.create_server(app, host="127.0.0.1", port=port, threads=threads, ident=None)
    collect_garbage()
    server.run()


def run_in_thread(app: App, port: int, *, threads: int = 8) -> None:
    """Serve ``app`` on ``port`` in a new thread; the port is open on return."""
    import waitress

    server = waitress.create_server(app, host="127.0.0.1", port=port, threads=threads, ident=None)
    threading.Thread(target=server.run, daemon=True).start()

"""Metrics in the text format of Prometheus, as a textfile or over HTTP; prometheus_client writes them.

Samples have no timestamps: node_exporter rejects textfiles with them.
"""

from __future__ import annotations

import logging
import resource
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gpustack.base.files import write_atomic
from gpustack.base.text import printable

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def gauge(
    name: str, documentation: str, labels: Sequence[str] = (), samples: Mapping[tuple[str, ...], float] | None = None
) -> Metric:
    """A gauge with its samples.

    :param samples: values by the values of the labels, which may be untrusted text.
    """
    family = GaugeMetricFamily(name, documentation, labels=labels)
    # A mapping again: node_exporter rejects a file in which two samples have the same labels.
    known = {tuple(printable(value, keep="") for value in values): number for values, number in (samples or {}).items()}
    for values, number in known.items():
        family.add_metric(values, number)
    return family


_LIMITS = {
    "threads": 2,
    "channel_timeout": 5,  # seconds, as all times here
    "cleanup_interval": 1,
    "channel_request_lookahead": 0,
    "max_request_header_size": 8 << 10,
    "max_request_body_size": 1 << 10,
    "asyncore_use_poll": True,
}
"""Of waitress."""
_CONNECTIONS = 512


def _connections() -> int:
    """The permitted number of connections: each takes a file descriptor."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if descriptors == resource.RLIM_INFINITY else min(_CONNECTIONS, descriptors * 3 // 4)


def _only_metrics(app: WSGIApplication) -> WSGIApplication:
    """Answer ``GET`` and ``HEAD`` of ``/metrics`` only, and one on each connection.

    waitress closes a connection after an answer of unknown length. A client that sends many requests at once and reads
    slowly would otherwise fill its buffer, at which one of the threads waits.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Length", "0")])
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD"), ("Content-Length", "0")])
        else:
            body = app({**environ, "REQUEST_METHOD": "GET"}, start_response)
            return iter(body) if environ["REQUEST_METHOD"] == "GET" else ()
        return ()

    return answer


class Page:
    """The metrics that are published at a time, as a collector of prometheus_client."""

    def __init__(self, families: Iterable[Metric] = ()) -> None:
        self._families = tuple(families)

    def publish(self, families: Iterable[Metric]) -> None:
        """Replace the metrics."""
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        """The metrics, for each scrape."""
        return self._families

    def write(self, path: Path) -> None:
        """Write the textfile ``path``. It is replaced atomically, and readable by node_exporter (mode 0644).

        :raises OSError: if the directory is missing or not writable; the file is then unchanged.
        """
        write_atomic(path, generate_latest(self._registry()).decode("utf-8"), mode=0o644, exact=True)

    def serve(self, address: str, port: int) -> int:
        """Serve the metrics over HTTP in a thread of its own, until the program ends.

        Silent or slow clients can't stop the scrapes: a connection ends after 5 s without activity, and connections
        above the limit wait.

        :param port: 0 for any free port.
        :returns: the port.
        :raises OSError: if the address is unknown or the port is in use.
        """
        import waitress

        family, _, _, _, found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        logging.getLogger("waitress").addHandler(logging.NullHandler())  # not to the terminal
        # The socket is ours: waitress leaves its own open if the port is in use.
        listening = socket.create_server((found[0], found[1]), family=family)
        server = waitress.create_server(
            _only_metrics(make_wsgi_app(self._registry())),
            sockets=[listening],
            ident=None,
            connection_limit=_connections(),
            **_LIMITS,
        )
        threading.Thread(target=server.run, name="metrics", daemon=True).start()
        return int(server.effective_port)

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(self)
        return registry

"""Metrics in the text format of Prometheus, as a textfile or over HTTP; prometheus_client writes them.

Samples have no timestamps: node_exporter rejects textfiles with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gpustack.base.files import write_atomic
from gpustack.base.text import printable


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
        write_atomic(path, generate_latest(self._registry()).decode("utf-8"))

    def serve(self, address: str, port: int) -> int:
        """Serve the metrics over HTTP in a thread of its own, until the program ends.

        :param port: 0 for any free port.
        :returns: the port.
        :raises OSError: if the address is unknown or the port is in use.
        """
        server, _thread = start_http_server(port, addr=address, registry=self._registry())
        return int(server.server_port)

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(self)
        return registry

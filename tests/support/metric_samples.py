"""Read samples of metrics, as Prometheus would."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from gpustack.base.prometheus import Page

Labels = frozenset[tuple[str, str]]


def exposition(metrics: Iterable[Metric]) -> str:
    """The text that a scrape would get."""
    registry = CollectorRegistry()
    registry.register(Page(metrics))
    return generate_latest(registry).decode("utf-8")


def samples(text: str, name: str) -> dict[Labels, float]:
    """The values of a metric by its labels; labels without a value are left out, as in Prometheus."""
    return {
        labels(**sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def labels(**values: str) -> Labels:
    """Labels as the keys of :func:`samples`."""
    return frozenset((label, value) for label, value in values.items() if value)

"""Metrics of free instances by flavor, for Prometheus."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from gpustack.base.prometheus import gauge
from gpustack.operate.capacity.model import Capacity


def families(counted: Iterable[Capacity]) -> Iterator[Metric]:
    """Yield the number of instances of each flavor; without flavors whose number is not certain."""
    yield gauge(
        "gpustack_flavor_free",
        "Instances of a flavor that still fit, if only this flavor is booted.",
        ("flavor",),
        {(capacity.demand.flavor,): capacity.least for capacity in counted if capacity.least == capacity.most},
    )

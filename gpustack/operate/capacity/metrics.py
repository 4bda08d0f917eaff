"""Metrics of free instances by flavor, for Prometheus."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.metrics_core import Metric

from gpustack.base.errors import PartialError
from gpustack.base.prometheus import gauge
from gpustack.cloud import Connection
from gpustack.fleet.model import Fleet
from gpustack.hosts.facts.model import Host as Facts
from gpustack.nova_options.options import Release
from gpustack.nova_options.scheduler import Scheduler
from gpustack.offer.flavor.desired import wanted
from gpustack.operate.capacity.assess import Databases, assess, state
from gpustack.operate.capacity.flavors import demands
from gpustack.operate.capacity.model import Capacity
from gpustack.spec.model import Spec


def capacities(
    cloud: Connection,
    spec: Spec,
    release: Release,
    facts: Sequence[Facts],
    databases: Databases | None,
    fleet: Fleet | None = None,
    scheduler: Scheduler | None = None,
) -> list[Capacity]:
    """Count how many more instances of each flavor of a spec fit.

    :param fleet: the GPUs in service, if they were read before.
    :param scheduler: the options of nova-scheduler, if they are known.
    :raises CloudError: if Nova or Placement does not answer.
    :raises PartialError: if something could not be read, so that the numbers are too small.
    """
    known = state(cloud, spec, fleet=fleet, facts=facts, databases=databases, scheduler=scheduler)
    if known.gaps:
        raise PartialError(f"free instances of flavors can't be counted: {'; '.join(known.gaps)}")
    flavors = wanted(spec, release=release, hosts=facts).flavors
    counted, _findings = demands(spec, flavors, known.flavors, scheduler)
    return [assess(cloud, known, demand) for demand in counted]


def families(counted: Iterable[Capacity]) -> Iterator[Metric]:
    """Yield the number of instances of each flavor; without flavors whose number is not certain."""
    yield gauge(
        "gpustack_flavor_free",
        "Instances of a flavor that still fit, if only this flavor is booted.",
        ("flavor",),
        {(capacity.demand.flavor,): capacity.least for capacity in counted if capacity.exact},
    )

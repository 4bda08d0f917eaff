"""Metrics of GPUs in service for Prometheus. Pure.

Labels are those of openstack-exporter, so that dashboards can join both: ``hostname`` is the name of the hypervisor,
``tenant_id`` the project.

A number that is not certain is absent. If Placement does not answer, no state is certain: reserved GPUs look free. If a
source of instances or rows does not answer, sums over projects, and over hosts whose GPUs are not listed, are absent.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import UTC

from prometheus_client.metrics_core import Metric

from gpustack.base.prometheus import gauge
from gpustack.fleet.model import Fleet, Gpu, Source, State
from gpustack.fleet.summary import units_by_state

Samples = dict[tuple[str, ...], float]
_COUNTED = frozenset({Source.NOVA, Source.PLACEMENT, Source.DATABASE})
"""The sources that sums need; Keystone has only names, and a snapshot only facts."""


def families(
    fleet: Fleet | None, asked: Collection[Source], ended: float, seconds: float, **others: bool
) -> Iterator[Metric]:
    """Yield the metrics of a fleet.

    :param fleet: None if no source answered.
    :param asked: the sources that were asked.
    :param ended: the end of the collection, in seconds since the epoch.
    :param seconds: its duration.
    :param others: whether further parts of it succeeded, by name.
    """
    if fleet is not None:
        yield from _of_gpus(fleet)
        yield from _sums(fleet)
    failed = _gaps(fleet) if fleet is not None else set(asked)
    outcomes = {source.lower(): source not in failed for source in sorted({*asked, *failed})}
    yield gauge(
        "gpustack_collect_success",
        "Whether the source answered completely in the last collection.",
        ("source",),
        {(name,): success for name, success in {**outcomes, **others}.items()},
    )
    yield gauge("gpustack_collect_timestamp_seconds", "End of the last collection.", samples={(): round(ended)})
    yield gauge("gpustack_collect_duration_seconds", "Duration of the last collection.", samples={(): seconds})


def _gaps(fleet: Fleet) -> set[Source]:
    return {gap.source for gap in fleet.partial}


def _of_gpus(fleet: Fleet) -> Iterator[Metric]:
    """The GPUs with an address."""
    listed = [gpu for gpu in fleet.gpus if gpu.address]
    yield gauge(
        "gpustack_gpu_info",
        "A GPU; the value is 1.",
        ("hostname", "address", *_INFO),
        {(*_place(gpu), *(value(gpu) for value in _INFO.values())): 1 for gpu in listed},
    )
    if Source.PLACEMENT not in _gaps(fleet):
        yield gauge(
            "gpustack_gpu_state",
            "State of a GPU: 1 for the present state, 0 for the others.",
            ("hostname", "address", "state"),
            {(*_place(gpu), state.value): gpu.state is state for gpu in listed for state in State},
        )
    held = [(gpu, holder) for gpu in listed for holder in gpu.holders]
    yield gauge(
        "gpustack_gpu_allocated_info",
        "A GPU and the instance that has it; the value is 1.",
        ("hostname", "address", "server_id", "tenant_id", "user_id", "flavor"),
        {(*_place(gpu), h.instance, h.project, h.user, h.server.flavor if h.server else ""): 1 for gpu, h in held},
    )
    yield gauge(
        "gpustack_gpu_allocated_since_timestamp_seconds",
        "Time since which the instance has its GPUs.",
        ("hostname", "address", "server_id"),
        {
            (*_place(gpu), holder.instance): holder.server.since.replace(tzinfo=UTC).timestamp()
            for gpu, holder in held
            if holder.server and holder.server.since
        },
    )


_INFO: dict[str, Callable[[Gpu], str]] = {
    "model": lambda gpu: gpu.model,
    "vendor_id": lambda gpu: gpu.vendor_id,
    "product_id": lambda gpu: gpu.product_id,
    "resource_class": lambda gpu: gpu.resource_class,
    "numa_node": lambda gpu: "" if gpu.numa_node is None else str(gpu.numa_node),
    "cell": lambda gpu: gpu.cell,
}
"""Labels of gpustack_gpu_info with their values; an empty value means that it is unknown."""


def _place(gpu: Gpu) -> tuple[str, str]:
    return _hostname(gpu), gpu.address


def _hostname(gpu: Gpu) -> str:
    return gpu.node or gpu.host


def _sums(fleet: Fleet) -> Iterator[Metric]:
    gaps = _gaps(fleet)
    counts = Samples()
    if Source.PLACEMENT not in gaps:
        counts |= _listed(fleet)
    if not gaps & _COUNTED:
        counts |= _not_listed(fleet)
    text = "GPUs, or their units (virtual functions), by hypervisor, model and state."
    yield gauge("gpustack_gpus", text, ("hostname", "model", "state"), counts)
    if gaps & _COUNTED:
        return
    text = "GPUs, or their units, that the instances of a project have."
    yield gauge("gpustack_tenant_gpus", text, ("tenant_id", "model"), _of_tenants(fleet))
    text = "Name of a project with GPUs; the value is 1."
    yield gauge("gpustack_tenant_info", text, ("tenant_id", "tenant"), dict.fromkeys(sorted(fleet.projects.items()), 1))


def _listed(fleet: Fleet) -> Samples:
    """The GPUs with an address; 0 for a state that no GPU has."""
    counts: Counter[tuple[str, ...]] = Counter()
    for gpu in fleet.gpus:
        if gpu.address:
            counts.update({(_hostname(gpu), gpu.model, state.value): 0 for state in State})
            counts.update({(_hostname(gpu), gpu.model, state.value): units for state, units in units_by_state(gpu)})
    return Samples(counts)


def _not_listed(fleet: Fleet) -> Samples:
    """The GPUs of hosts that show only how many are in use, and with facts how many are free."""
    shares = [gpu for gpu in fleet.gpus if not gpu.address]
    counts: Counter[tuple[str, ...]] = Counter((_hostname(gpu), gpu.model, gpu.state.value) for gpu in shares)
    hostnames = {gpu.host: _hostname(gpu) for gpu in shares}
    free = {
        (hostnames[count.host], count.model, State.FREE.value): float(count.free)
        for count in fleet.counts
        if not count.per_gpu and count.free is not None
    }
    return Samples(counts) | free


def _of_tenants(fleet: Fleet) -> Samples:
    counts: Counter[tuple[str, ...]] = Counter()
    for gpu in fleet.gpus:
        for holder in gpu.holders:
            counts[holder.project, gpu.model] += holder.amount
    return Samples(counts)

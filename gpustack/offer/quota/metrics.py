"""The limits of projects as a metric for Prometheus, with the labels of the metric of their GPUs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from gpustack.base.by_key import by_key
from gpustack.base.prometheus import gauge
from gpustack.fleet.cards import cards_of
from gpustack.offer.quota.desired import class_of
from gpustack.offer.quota.shares import Share
from gpustack.spec.model import Spec


def families(spec: Spec, known: Iterable[Share]) -> Iterator[Metric]:
    """Yield the limits; without those that are unknown, and those of -1, which depend on the release of oslo.limit.

    A card that several resource classes count has the sum of their limits, if all have one: one metric counts all its
    GPUs.
    """
    models = by_key((class_of(spec, name), name) for name in spec.models)
    labels = {resource_class: cards_of(spec, names) for resource_class, names in models.items()}
    sums = by_key(((share.project.id, labels[share.resource_class]), share.limit) for share in known)
    yield gauge(
        "gpustack_tenant_gpu_limit",
        "GPUs of a model that the instances of a project may have, as Keystone has it.",
        ("tenant_id", "model"),
        {key: sum(limits) for key, limits in _certain(sums, Counter(labels.values()))},
    )


def _certain(
    sums: Mapping[tuple[str, str], list[int | None]], classes: Mapping[str, int]
) -> Iterator[tuple[tuple[str, str], list[int]]]:
    for (project, label), limits in sums.items():
        certain = [limit for limit in limits if limit is not None and limit >= 0]
        if len(certain) == classes[label]:
            yield (project, label), certain

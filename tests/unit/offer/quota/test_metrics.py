"""The limits of projects as a metric."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.metrics_core import Metric

from gpustack.offer.quota.desired import wanted
from gpustack.offer.quota.metrics import families
from gpustack.offer.quota.survey import survey
from gpustack.spec.load import parse_spec
from support.limits import StandInLimits, limited

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  other: {match: {vendor: "10de", product: "11b4", subsystem_vendor: "10de"}, ALIAS}
  p100: {match: {vendor: "10de", product: "15f8"}, alias: k4200}
hosts: {gpu1: [k4200, other]}
nova: {release: "2025.2"}
quotas: {default: {k4200: 1}}
"""


def sampled(metrics: Iterable[Metric]) -> dict[tuple[str, str], float]:
    (metric,) = metrics
    assert metric.name == "gpustack_tenant_gpu_limit"
    return {(sample.labels["tenant_id"], sample.labels["model"]): sample.value for sample in metric.samples}


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        (StandInLimits(limited(1, p1=4)), {"p1": 4, "p2": 1}),
        (StandInLimits(limited(1, complete=False, p1=4)), {"p1": 4}),
        (StandInLimits(limited(-1, p1=0)), {"p1": 0}),
        (StandInLimits(limited(None)), {}),
    ],
)
def test_certain_limits_have_the_names_of_the_cards(api: StandInLimits, expected: dict[str, float]) -> None:
    spec = parse_spec(SPEC.replace("ALIAS", "alias: k4200"), "spec")
    known = survey(api, wanted(spec), ["p2"], with_use=False)
    model = "NVIDIA Quadro K4200 or NVIDIA Tesla P100 PCIe 16GB"
    found = sampled(families(spec, known.shares))
    assert {project: limit for (project, _), limit in found.items()} == expected
    assert {label for _, label in found} <= {model}


def test_card_without_a_limit_under_another_alias_has_no_metric() -> None:
    spec = parse_spec(SPEC.replace("ALIAS", "alias: other").replace(", alias: k4200}", "}"), "spec")
    known = survey(StandInLimits(limited(1, p1=4)), wanted(spec), [], with_use=False)
    assert len(known.shares) == 1
    assert sampled(families(spec, known.shares)) == {}

"""Free instances by flavor as metrics. A stand-in answers for the cloud; tests/nova/fleet asks a real one."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from gpustack.nova_options.releases import release
from gpustack.offer.flavor.desired import wanted
from gpustack.operate.capacity import assess, metrics
from gpustack.operate.capacity.assess import State
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
flavors: {g1: {model: k4200, vcpus: 1, ram: 1GiB, disk: 1}}
"""


def test_a_gap_is_reported_beside_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec(SPEC, "gpustack.yaml")
    known = State(hosts=(), gaps=("Nova: a cell does not answer",))
    monkeypatch.setattr(assess, "state", lambda *_arguments, **_more: known)
    flavors = wanted(spec, release=release("2025.2")).flavors
    (counted,), _, gaps = assess.count_all(Mock(), spec, flavors)
    (family,) = metrics.families([counted])
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"flavor": "g1"}, 0)]
    assert gaps == known.gaps

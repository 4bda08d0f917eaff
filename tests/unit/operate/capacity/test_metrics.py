"""Free instances by flavor as metrics. A stand-in answers for the cloud; tests/nova/fleet asks a real one."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from gpustack.base.errors import PartialError
from gpustack.nova_options.releases import release
from gpustack.operate.capacity import metrics
from gpustack.operate.capacity.assess import State
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
flavors: {g1: {model: k4200, vcpus: 1, ram: 1GiB, disk: 1}}
"""


def test_a_gap_is_an_error_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec(SPEC, "gpustack.yaml")
    known = State(hosts=())
    monkeypatch.setattr(metrics, "state", lambda *_arguments, **_more: known)
    (counted,) = metrics.capacities(Mock(), spec, release("2025.2"), (), None)
    (family,) = metrics.families([counted])
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"flavor": "g1"}, 0)]
    known = State(hosts=(), gaps=("Nova: a cell does not answer",))
    with pytest.raises(PartialError, match="Nova: a cell does not answer"):
        metrics.capacities(Mock(), spec, release("2025.2"), (), None)

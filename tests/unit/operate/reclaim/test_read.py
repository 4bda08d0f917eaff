"""Which hosts accept an instance again after shelving."""

from __future__ import annotations

import pytest

from gpustack.nova_options.aggregates import Aggregate
from gpustack.operate.reclaim.model import Rules
from gpustack.operate.reclaim.read import _Hosts, no_return
from gpustack.spec.patterns import HostPattern, Patterns
from support.fleet_answers import server

RULES = Rules(aliases=frozenset({"k4200"}), hosts={"k4200": Patterns([HostPattern.parse("gpu[1:3]")])})
SERVICES = ("gpu1", "gpu2")
GPU_HOST, A100 = "CUSTOM_GPU_HOST", "CUSTOM_A100"


def aggregate(*hosts: str, projects: str = "", **traits: str) -> Aggregate:
    """An aggregate that requires traits, and accepts some projects."""
    metadata = {f"trait:{name}": value for name, value in traits.items()}
    if projects:
        metadata["filter_tenant_id"] = projects
    return Aggregate(name="gpu", hosts=frozenset(hosts), metadata=metadata)


ISOLATED = aggregate("gpu1", "GPU2", CUSTOM_GPU_HOST="required")


@pytest.mark.parametrize(
    ("aggregates", "traits", "problem"),
    [
        ([], set(), ""),
        ([ISOLATED], set(), "gpu1 requires CUSTOM_GPU_HOST, which its flavor lacked at boot; gpu2 requires"),
        ([ISOLATED], {GPU_HOST}, ""),
        ([ISOLATED], {A100}, "gpu1 requires CUSTOM_GPU_HOST"),
        ([aggregate("gpu1", CUSTOM_GPU_HOST="required")], set(), ""),  # gpu2 is open
        ([aggregate("gpu1", "gpu2", CUSTOM_GPU_HOST="forbidden")], set(), ""),  # Nova reads no other value
        ([ISOLATED, aggregate("gpu2", CUSTOM_A100="required")], {A100}, "gpu2 requires CUSTOM_GPU_HOST, which"),
        ([aggregate("gpu1", "gpu2", projects="p2,p3")], set(), "gpu1 accepts other projects only; gpu2 accepts"),
        ([aggregate("gpu1", "gpu2", projects="p2"), aggregate("gpu2", projects="p1")], set(), ""),
        ([ISOLATED, aggregate("gpu1", "gpu2", projects="p2")], {GPU_HOST}, "accepts other projects only"),
    ],
)
def test_every_host_with_the_gpus_is_compared(
    aggregates: list[Aggregate], traits: tuple[str, ...], problem: str
) -> None:
    text = no_return(server("vm", "gpu1", traits=frozenset(traits)), SERVICES, aggregates)
    assert (problem in text) if problem else not text


def test_an_ordinary_host_is_no_place_for_a_gpu_instance() -> None:
    hosts = _Hosts(names=frozenset({"gpu2", "gpu1", "cpu1", "gpu4"}), up=frozenset(), aggregates=())
    assert hosts.having(RULES, server("vm", "gpu1")) == ["gpu1", "gpu2"]
    assert no_return(server("vm", "gpu1"), SERVICES, [ISOLATED])
    assert not no_return(server("vm", "gpu1"), (*SERVICES, "gpu3"), [ISOLATED])


def test_hosts_that_the_spec_names_otherwise_leave_its_own_host() -> None:
    text = no_return(server("vm", "node7"), [], [aggregate("node7", projects="p2")])
    assert text == "node7 accepts other projects only"


def test_many_hosts_are_counted() -> None:
    hosts = [f"gpu{number}" for number in range(1, 9)]
    text = no_return(server("vm", "gpu1"), hosts, [aggregate(*hosts, projects="p2")])
    assert text.endswith("gpu5 accepts other projects only; 3 more hosts refuse it")

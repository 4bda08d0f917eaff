"""First causes by host, with their fixes."""

from __future__ import annotations

from dataclasses import replace

from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.model import Cards, Demand, Host, Reason
from gpustack.operate.why.flavor import causes, columns, steps_of

CARDS = (Cards(aliases=frozenset({"k4200"}), count=4),)
HOST = Host(uuid="a", name="a", cards=CARDS, amounts={"VCPU": 8, "MEMORY_MB": 8192})
DEMAND = Demand(flavor="f", gpus={"k4200": 2}, amounts={"VCPU": 2, "MEMORY_MB": 1024}, vcpus=2, ram=1024)
KNOWN = Scheduler(filters=("ComputeFilter", "PciPassthroughFilter"), isolated=False, by_project=False)


def host(name: str, **more: object) -> Host:
    return replace(HOST, uuid=name, name=name, **more)  # type: ignore[arg-type]


def test_hosts_are_grouped_by_their_first_cause() -> None:
    hosts = [
        HOST,
        host("b", amounts={"VCPU": 1, "MEMORY_MB": 8192}),
        host("c", amounts={"VCPU": 0, "MEMORY_MB": 10}, closed=Reason.DOWN),
        host("d", closed=Reason.DISABLED),
        host("e", cards=None),
        host("f", cards=(replace(CARDS[0], count=1),)),
    ]
    found = causes(hosts, DEMAND, KNOWN)
    assert [(cause.hosts, cause.step.name, cause.available, cause.finding.code.value) for cause in found] == [
        (["b", "c"], "Placement: VCPU", "0 to 1", "GPU576"),
        (["d"], "compute_status_filter", "", "GPU574"),
        (["e"], "GPUs", "", "GPU580"),
        (["f"], "PciPassthroughFilter", "1", "GPU579"),
    ]
    assert found[0].later == ["Placement: MEMORY_MB", "ComputeFilter"]
    assert "Placement: VCPU (needs 2, free: 0 to 1)" in found[0].finding.message
    assert all(cause.finding.remedy for cause in found)


def test_data_have_every_step_and_people_the_first() -> None:
    (cause,) = causes([host("b", amounts={"VCPU": 1, "MEMORY_MB": 8192})], DEMAND, KNOWN)
    cells = {column.key: column.value(cause) for column in columns(later=False)}
    assert [step["step"] for step in cells["steps"]["b"]] == [step.name for step in cause.walks["b"].steps]  # type: ignore[index]
    assert "later" not in {column.key for column in columns(later=False) if column.title}
    outcomes = {step["step"]: step["outcome"] for step in steps_of(cause.walks["b"])}
    assert (outcomes["API"], outcomes["Placement: VCPU"]) == ("passed", "failed")


def test_projects_of_aggregates_refuse_others() -> None:
    enabled = replace(KNOWN, filters=("AggregateMultiTenancyIsolation",))
    closed = host("b", metadata={"filter_tenant_id": frozenset({"p1"})})
    assert not causes([closed], replace(DEMAND, project="p1"), enabled)
    (cause,) = causes([closed], replace(DEMAND, project="p2"), enabled)
    assert (cause.step.name, cause.finding.code) == ("AggregateMultiTenancyIsolation", "GPU573")

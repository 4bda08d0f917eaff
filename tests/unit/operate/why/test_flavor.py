"""First causes by host, with their fixes."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpustack.base.findings import Code
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.model import Cards, Demand, Host, Outcome, Reason, Step
from gpustack.operate.capacity.topology import GuestNode, Topology
from gpustack.operate.why.flavor import STEP_COLUMNS, causes, columns

CARDS = (Cards(aliases=frozenset({"k4200"}), count=4),)
HOST = Host(uuid="a", name="a", cards=CARDS, amounts={"VCPU": 8, "MEMORY_MB": 8192})
DEMAND = Demand(flavor="f", gpus={"k4200": 2}, amounts={"VCPU": 2, "MEMORY_MB": 1024}, vcpus=2, ram=1024)
KNOWN = Scheduler(filters=("ComputeFilter", "PciPassthroughFilter"), isolated=False, by_project=False)


TOP = Path(__file__).parents[4]
PAGE = TOP / "docs/howto/no-valid-host.md"
MARKED = re.compile(r"(?<=situations.yaml -->\n\n)(.*?)(?=<!-- end of the situations -->)", re.DOTALL)


def test_the_page_has_the_situations_of_the_real_nova() -> None:
    """``GPUSTACK_GOLDEN=write`` writes the table."""
    cases = yaml.safe_load((TOP / "tests/nova/capacity/situations.yaml").read_text(encoding="utf-8"))
    assert len(cases) >= 30
    assert {code for case in cases.values() for code in case["code"].split()} <= {code.value for code in Code}
    lines = ["| Cause | Step | Code | Fix |", "|---|---|---|---|"]
    for case in cases.values():
        step = "`PciPassthroughFilter`, or `Placement:` with the class of the GPU"
        step = step if case["step"] == "PCI" else f"`{case['step']}`"
        lines.append(f"| {case['cause']} | {step} | {', '.join(case['code'].split())} | {case['fix']} |")
    text = PAGE.read_text(encoding="utf-8")
    written = MARKED.sub(lambda _match: "\n".join(lines) + "\n\n", text, count=1)
    if os.environ.get("GPUSTACK_GOLDEN") == "write":
        PAGE.write_text(written, encoding="utf-8")
    assert text == written or os.environ.get("GPUSTACK_GOLDEN") == "write", "run with GPUSTACK_GOLDEN=write"


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
    steps = {str(step["step"]): step for step in cells["steps"]["b"]}
    outcomes = {name: step["outcome"] for name, step in steps.items()}
    assert (outcomes["API"], outcomes["Placement: VCPU"]) == ("passed", "failed")
    assert (steps["Placement: VCPU"]["available"], steps["Placement: VCPU"]["doubt"]) == (1, None)
    assert (cells["available"], cells["wanted"], cells["code"]) == ("1", 2, "GPU576")
    unsure = {Outcome.PASSED: "passed", Outcome.FAILED: "failed", Outcome.UNKNOWN: "unknown"}
    for outcome, text in unsure.items():
        shown = [
            {column.key: column.cell(Step(name="x", outcome=outcome, doubt=d)) for column in STEP_COLUMNS}
            for d in ("", "why")
        ]
        expected = "not evaluated" if outcome is Outcome.UNKNOWN else text
        assert [(step["outcome"], step["doubt"]) for step in shown] == [(expected, "-"), (text, "why")]


def test_projects_of_aggregates_refuse_others() -> None:
    enabled = replace(KNOWN, filters=("AggregateMultiTenancyIsolation",))
    closed = host("b", metadata={"filter_tenant_id": frozenset({"p1"})})
    assert not causes([closed], replace(DEMAND, project="p1"), enabled)
    (cause,) = causes([closed], replace(DEMAND, project="p2"), enabled)
    assert (cause.step.name, cause.finding.code) == ("AggregateMultiTenancyIsolation", "GPU573")


def test_one_step_with_two_reasons_is_two_causes() -> None:
    """NUMATopologyFilter refuses for lack of GPUs, or of processors: the fixes differ."""
    topology = Topology(nodes=(GuestNode(dedicated=2, shared=0, memory=512),), policy="dedicated")
    nodes = {0: NumaNode(cpus=frozenset({4, 5}), pcpus=frozenset({0, 1}), pinned=frozenset({0}), memory=8192)}
    hosts = [host("few", nodes=nodes), host("none", nodes=nodes, cards=())]
    demand = replace(DEMAND, topology=topology, amounts={"MEMORY_MB": 512})
    found = causes(hosts, demand, replace(KNOWN, filters=("NUMATopologyFilter",)))
    assert {tuple(cause.hosts): (cause.step.name, cause.finding.code.value) for cause in found} == {
        ("few",): ("NUMATopologyFilter", "GPU578"),
        ("none",): ("NUMATopologyFilter", "GPU579"),
    }


@pytest.mark.parametrize(("counts", "text"), [((1, 1), "k4200:1, p100:0"), ((1, 2), "k4200:1, p100:0 on a")])
def test_texts_of_several_hosts_name_the_first_one(counts: tuple[int, int], text: str) -> None:
    hosts = [
        host(name, cards=(Cards(aliases=frozenset({"k4200"}), count=count),))
        for name, count in zip("ab", counts, strict=True)
    ]
    (cause,) = causes(hosts, replace(DEMAND, gpus={"k4200": 1, "p100": 1}), KNOWN)
    assert (cause.hosts, cause.available) == (["a", "b"], text)

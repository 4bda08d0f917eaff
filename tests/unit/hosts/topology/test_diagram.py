"""Diagrams for other programs: their structure, and text that could break out of a label."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pytest

from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import check
from gpustack.hosts.topology.diagram import document, dot, mermaid
from gpustack.hosts.topology.model import Topology
from support.host_samples import host
from support.pci_layouts import GEN3, LAYOUTS, bridge, gpu, machine, nic, vmd

Draw = Callable[[Sequence[Topology]], str]
HOSTILE = 'a"b] end; <script>alert(1)</script> `x` #35; **b** \\N \\" | } --> {html} \u202e\n</s>'

# The grammars of the parts that are drawn: one statement a line.
MERMAID = re.compile(
    r'flowchart LR| +subgraph h[0-9n]+\["[^"]*"\]| +end'
    r'| +f\d+\["[^"]*"\]| +f\d+\[\["[^"]*"\]\]|  f\d+ ---(?:\|"[^"]*"\|)? f\d+'
)
STRING = r'"(?:[^"\\]|\\.)*"'
DOT = re.compile(
    rf"graph topology \{{|  rankdir=LR;|  (?:node|edge) \[.*\];|  fontname=.*;| +subgraph cluster_[0-9_]+ \{{| *\}}"
    rf"| +label={STRING};| +f\d+ \[label={STRING}(?:, penwidth=2)?\];|  f\d+ -- f\d+(?: \[label={STRING}\])?;"
)


def edges(drawn: str) -> list[tuple[str, str]]:
    return re.findall(r"^  (f\d+) -+(?:\|.*\|)? (f\d+)", drawn, re.MULTILINE)


def shapes(drawn: str) -> list[str]:
    return re.findall(r"^ +(f\d+) ?\[", drawn, re.MULTILINE)


@pytest.mark.parametrize(("draw", "grammar"), [(mermaid, MERMAID), (dot, DOT)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_line_is_a_statement_and_each_function_a_shape(
    draw: Draw, grammar: re.Pattern[str], layout: Callable
) -> None:
    built = topology(machine(*layout()))
    drawn = draw([built])
    assert [line for line in drawn.splitlines() if not grammar.fullmatch(line)] == []
    assert [
        node.address for node in built.nodes() if drawn.count(f"{node.address} ") + drawn.count(f'{node.address}"') < 1
    ] == []
    buses = sum(len(box.buses) for box in built.boxes)
    empty = sum(not box.buses for box in built.boxes)
    assert len(shapes(drawn)) == len({*shapes(drawn)}) == len([*built.nodes()]) + buses + empty
    # A tree below each root bus: each function has exactly one line to the function above it.
    assert len({below for _, below in edges(drawn)}) == len(edges(drawn)) == len([*built.nodes()])
    assert {end for edge in edges(drawn) for end in edge} <= {*shapes(drawn)}


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_braces_and_frames_are_closed(draw: Draw) -> None:
    drawn = draw([topology(machine(gpu("0000:05:00.0")))])
    if draw is mermaid:
        assert drawn.count("subgraph") == len(re.findall(r"^ +end$", drawn, re.MULTILINE)) == 4
    else:
        assert drawn.count("{") == drawn.count("}") == 5


@pytest.mark.parametrize(("draw", "grammar"), [(mermaid, MERMAID), (dot, DOT)])
def test_no_name_breaks_out_of_its_label(draw: Draw, grammar: re.Pattern[str]) -> None:
    device = gpu("0000:05:00.0", uses={"net": [{"name": HOSTILE.replace("\n", "")}]}, slot='"];')
    drawn = draw([topology(machine(bridge("0000:00:02.0", device))).owned({"0000:05:00.0": HOSTILE})])
    assert [line for line in drawn.splitlines() if not grammar.fullmatch(line)] == []
    assert "\u202e" not in drawn


def test_mermaid_gets_no_markup() -> None:
    drawn = mermaid([topology(machine(gpu("0000:05:00.0"))).owned({"0000:05:00.0": HOSTILE})])
    labels = re.findall(r'"([^"]*)"', drawn)
    assert not re.search(r"[<>`*\\{}|]", "".join(labels).replace("<br/>", ""))
    assert "#60;script#62;" in drawn


def test_dot_keeps_quotes_and_backslashes_as_text() -> None:
    drawn = dot([topology(machine(gpu("0000:05:00.0"))).owned({"0000:05:00.0": 'a"b\\'})])
    assert 'used by a\\"b\\\\"' in drawn


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_several_hosts_are_one_diagram(draw: Draw) -> None:
    hosts = [topology(machine(gpu("0000:05:00.0"), hostname=name)) for name in ("gpu01", "gpu02")]
    drawn = draw(hosts)
    assert len(shapes(drawn)) == len({*shapes(drawn)}) == 2 * len(shapes(draw(hosts[:1])))
    assert re.findall("gpu0[12]", drawn) == ["gpu01", "gpu02"]
    assert "no GPU and no NIC" in draw([topology(host())])


def test_the_promised_keys() -> None:
    narrow = gpu("0000:81:00.0", link={**GEN3, "width": 8}, iommu_group=4, driver="vfio-pci")
    built = topology(machine(bridge("0000:80:02.0", narrow, numa_node=1), nic("0000:80:04.0", numa_node=1)))
    data = json.loads(json.dumps(document(built, check(built))))
    assert list(data) == ["host", "numa_nodes", "distances", "nvswitches", "findings"]
    assert [node["node"] for node in data["numa_nodes"]] == [0, 1]
    (bus,) = data["numa_nodes"][1]["root_buses"]
    assert {key: bus[key] for key in bus if key != "children"} == {
        "bus": "0000:80",
        "controller": None,
        "missing_bridge": None,
    }
    assert bus["children"][0]["kind"] == "root port"
    assert bus["children"][0]["children"] == [
        {
            "address": "0000:81:00.0",
            "kind": "gpu",
            "label": "GPU0",
            "name": "NVIDIA Tesla V100 SXM2 32GB",
            "ids": "10de:1db5",
            "class": "030200",
            "driver": "vfio-pci",
            "iommu_group": 4,
            "numa_node": 1,
            "slot": None,
            "interfaces": [],
            "infiniband": [],
            "link": {
                "now": {"width": 8, "gigatransfers": 8.0},
                "limit": {"width": 16, "gigatransfers": 8.0},
                "own": {"width": 16, "gigatransfers": 8.0},
            },
            "virtual_functions": [],
            "owner": None,
            "children": [],
        }
    ]
    assert data["distances"] == {"0000:81:00.0": {"0000:81:00.0": "X", "0000:80:04.0": "PHB"}}
    assert [finding["code"] for finding in data["findings"]] == ["GPU720"]


def test_a_controller_is_named() -> None:
    data = document(topology(machine(*vmd())))
    assert [bus["controller"] for bus in data["numa_nodes"][1]["root_buses"]] == [None, "0000:80:05.5"]

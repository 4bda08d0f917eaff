"""Diagrams for other programs: their structure, and text that could break out of a label."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.diagram import dot, mermaid
from gpustack.hosts.topology.model import Topology
from support.host_samples import host
from support.pci_layouts import LAYOUTS, bridge, gpu, machine

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

"""The topology of hosts on the page."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from gpustack.fleet.model import Fleet, Holder, State
from gpustack.hosts.facts.model import Host
from gpustack.hosts.topology.build import MEANINGS, topology
from gpustack.operate.report import topologies
from gpustack.operate.report.hosts import GROUP, host_groups
from gpustack.operate.report.page import Report, parts
from gpustack.operate.report.topologies import Drawing, Topologies
from support.fleets import HOSTILE, fleet_of, fleet_on
from support.page import Page, words
from support.pci_layouts import bridge, dgx1, gpu, machine, nic

AT = datetime.fromisoformat("2026-11-22T18:04:05")


def named(host: Host, name: str) -> Host:
    return host.model_copy(update={"hostname": name})


def page_of(fleet: Fleet, *hosts: Host) -> Page:
    page = Page("".join(parts(Report(fleet=fleet, at=AT, topologies=Topologies(hosts)))))
    assert page.problems() == []
    return page


def test_host_has_its_tree_with_links_states_and_holders() -> None:
    host = named(machine(*dgx1()), "gpu1")
    fleet = fleet_on(host)
    (section,) = page_of(fleet, host).find(".//*[@id='h1']")
    lines = [words(line) for line in section.iterfind(".//div[@class='tree']//li")]
    for number, entry in enumerate(fleet.gpus):
        (line,) = [line for line in lines if f" GPU{number} {entry.address}" in line and line.count("GPU") == 1]
        assert entry.server is None or f"used by {entry.server.name} (project" in line
    marks = [mark.attrib["class"] for mark in section.iterfind(".//div[@class='tree']//li/i")]
    assert sorted(marks) == sorted(f"g {entry.state[0]}" for entry in fleet.gpus)


def test_distances_are_a_table_of_devices_and_gpus() -> None:
    host = named(machine(*dgx1()), "gpu1")
    (table,) = page_of(fleet_on(host), host).find(".//table[@class='distances']")
    rows = [[words(cell) for cell in row] for row in table.iter("tr")]
    assert rows[0] == ["Device", *(f"GPU{n}" for n in range(8))]
    assert [row[0] for row in rows[1:9]] == [f"GPU{n}" for n in range(8)]
    assert rows[1][1] == "X"
    assert {word for row in rows[1:] for word in row[1:]} >= {"PIX", "PHB", "SYS"}


def test_hosts_without_facts_have_no_topology() -> None:
    assert "Topology" not in page_of(fleet_of(2)).words
    host = named(machine(*dgx1()), "gpu0001")
    page = page_of(fleet_of(2), host)
    assert [len(page.find(f".//*[@id='h{number}']/h4")) for number in (1, 2)] == [1, 0]


def test_hosts_of_a_large_fleet_that_are_alike_are_drawn_once() -> None:
    ordinary = machine(bridge("0000:00:02.0", gpu("0000:02:00.0")))
    other = machine(bridge("0000:00:02.0", gpu("0000:02:00.0"), nic("0000:03:00.0")))
    hosts = [named(other if number == 3 else ordinary, f"gpu{number:04}") for number in range(GROUP + 2)]
    page = page_of(fleet_on(*hosts), *hosts)
    only = Topologies(tuple(hosts[:3])).shapes(host_groups(fleet_on(*hosts)))
    assert [(shape.hosts, shape.members) for shape in only] == [(3, ["gpu0000", "gpu0001", "gpu0002"])]  # with facts
    shapes = page.find(".//*[@id='topology']/details")
    assert [words(shape).split()[:2] for shape in shapes] == [["49", "hosts"], ["1", "host"]]
    assert "gpu0000, gpu0001, gpu0002, gpu0004" in words(shapes[0])
    assert not page.find(".//h4")


def test_drawings_of_a_large_fleet_are_limited() -> None:
    hosts = [
        named(machine(bridge("0000:00:02.0", gpu(f"0000:{number + 3:02x}:00.0"))), f"gpu{number:04}")
        for number in range(GROUP + 2)
    ]
    shapes = Topologies(tuple(hosts)).shapes(host_groups(fleet_on(*hosts)))
    assert [shape.hosts for shape in shapes] == [*[1] * 12, 38]
    assert (shapes[-1].drawing, shapes[0].drawing is None) == (None, False)
    assert "Not drawn" in page_of(fleet_on(*hosts), *hosts).section("topology")


def test_each_topology_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(topologies, "topology", lambda host: built.append(host.hostname) or topology(host))
    hosts = (named(machine(*dgx1()), "gpu1"), named(machine(*dgx1()), "gpu2"))
    known = Topologies(hosts)
    assert [entry.host for entry in known.all()] == list(hosts)
    fleet = fleet_on(*hosts)
    "".join(parts(Report(fleet=fleet, at=AT, topologies=known)))
    assert built == ["gpu1", "gpu2"]


def test_names_on_the_drawing_are_text() -> None:
    host = named(machine(*dgx1()), "gpu1")
    fleet = fleet_on(host)
    servers = [replace(entry.holders[0].server, name=HOSTILE) for entry in fleet.gpus if entry.holders]
    gpus = tuple(
        replace(entry, holders=(replace(entry.holders[0], server=servers[0]),)) if entry.holders else entry
        for entry in fleet.gpus
    )
    tree = page_of(replace(fleet, gpus=gpus), host).find(".//div[@class='tree']")
    assert "used by <img src=x onerror=alert(1)>\\x1b[2J\\u202e" in words(tree[0])


def drawn(host: Host) -> Drawing:
    (group,) = host_groups(fleet_on(host))
    drawing = Topologies((host,)).drawing(group.hosts[0])
    assert drawing is not None
    return drawing


def test_distances_begin_with_two_devices() -> None:
    alone = drawn(named(machine(bridge("0000:00:02.0", gpu("0000:02:00.0"))), "gpu1"))
    assert (alone["distances"], alone["meanings"], alone["notes"]) == ([], [], [])
    pair = bridge("0000:00:02.0", gpu("0000:02:00.0"), nic("0000:03:00.0"))
    two = drawn(named(machine(pair), "gpu1"))
    assert len(two["distances"]) == 2
    words = {word for _label, cells in two["distances"] for word in cells if word != "X"}
    assert [word for word, _meaning in two["meanings"]] == [word for word in MEANINGS if word in words]
    assert 0 < len(words) < len(MEANINGS)


def test_a_table_that_is_too_large_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.hosts.topology.build.MOST_DEVICES", 7)
    large = drawn(named(machine(*dgx1()), "gpu1"))
    assert large["distances"] == []
    assert "GPUs and NICs are too many" in large["notes"][0]


def test_many_holders_of_a_gpu_are_counted() -> None:
    host = named(machine(bridge("0000:00:02.0", gpu("0000:02:00.0"))), "gpu1")
    fleet = fleet_on(host)
    (one,) = fleet.gpus
    holders = tuple(Holder(consumer=f"c{number}", project="p1" if number == 0 else "") for number in range(4))
    page = page_of(replace(fleet, gpus=(replace(one, state=State.ALLOCATED, units=8, holders=holders),)), host)
    assert "used by consumer c0 (project p1), consumer c1 and 2 more" in page.words

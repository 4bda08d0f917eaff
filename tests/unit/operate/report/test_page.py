"""The page is well-formed, self-contained, escaped and complete."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpustack.fleet.model import Fleet, Gap, Source, State
from gpustack.operate.report.hosts import GROUP
from gpustack.operate.report.page import Report, parts, write
from gpustack.operate.report.tables import flavor_row
from gpustack.operate.report.topologies import Topologies
from support.fleets import HOSTILE, fleet_of, fleet_on, gpu, hostile
from support.page import Page
from support.pci_layouts import bridge, machine
from support.pci_layouts import gpu as gpu_at

AT = datetime.fromisoformat("2026-11-22T18:04:05")
GAP = Gap(source=Source.NOVA, reason="cell cell2 does not answer")


def rendered(fleet: Fleet, **more: object) -> str:
    return "".join(parts(Report(fleet=fleet, at=AT, **more)))  # type: ignore[arg-type]


FLEETS = {
    "empty": Fleet(),
    "small": fleet_of(6),
    "large": fleet_of(130, 4),
    "hostile": hostile(),
    "partial": replace(fleet_of(2), partial=(GAP,), notes=("2 other PCI devices are not listed",)),
}


@pytest.mark.parametrize("name", FLEETS)
def test_page_is_safe_and_well_formed(name: str) -> None:
    page = Page(rendered(FLEETS[name], cloud=HOSTILE if name == "hostile" else "prod"))
    assert page.problems() == []


def test_browser_reads_the_same_elements() -> None:
    """HTML has rules of its own: where the strict parser sees an element, a browser must see it too."""
    text = rendered(hostile(), cloud=HOSTILE)
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            seen.append(tag)

    reader = Reader()
    reader.feed(text)
    reader.close()
    assert seen == [element.tag for element in Page(text).all]


def test_names_of_tenants_are_text_only() -> None:
    text = rendered(hostile(), cloud=HOSTILE)
    assert not [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]
    words = Page(text).words
    assert words.count("<img src=x onerror=alert(1)>\\x1b[2J\\u202e\"'&{{ 7 * 7 }}</script>") > 8
    assert "49" not in re.sub(r"[0-9a-f]{4}-[0-9a-f-]+", "", words)


@pytest.mark.parametrize("state", State)
def test_each_state_has_a_legend_and_a_mark_beside_its_color(state: State) -> None:
    page = Page(rendered(fleet_of(1)))
    legend = [term for term in page.find(".//dl/div/dt") if f"{state}:" in "".join(term.itertext())]
    assert [mark.attrib["class"] for mark in legend[0].findall("i")] == [f"g {state[0]}"]
    (style,) = page.find("./head/style")
    marks = dict(re.findall(r'\.g\.(\w)::before \{ content: "(.)"', style.text or ""))
    assert len(set(marks.values())) == len(State)
    assert state[0] in marks


def test_map_shows_each_gpu_with_its_holder() -> None:
    fleet = fleet_of(3)
    page = Page(rendered(fleet))
    tips = [("".join(link.itertext()), link.attrib["class"]) for link in page.find(".//ul[@class='map']/li/ul/li/a")]
    assert len(tips) == len(fleet.gpus)
    for entry, (tip, style) in zip(fleet.gpus, tips, strict=True):
        assert style == f"g {entry.state[0]}"
        assert entry.address in tip
        assert entry.state.value in tip
        assert entry.server is None or entry.server.name in tip


def test_rows_have_instance_project_user_and_time() -> None:
    page = Page(rendered(fleet_of(2)))
    row = next(row for row in page.find(".//details/table/tbody/tr") if "SHUTOFF" in "".join(row.itertext()))
    cells = [" ".join(" ".join(cell.itertext()).split()) for cell in row]
    assert cells[0].startswith("0000:2f:00.0 NUMA node 1")
    assert re.fullmatch(r"allocated", cells[1])
    assert re.fullmatch(r"train-\d+-6 a100-1.large, SHUTOFF, 7d4f0c1e-\S+", cells[2])
    assert re.fullmatch(r"project-\d alice", cells[3])
    assert re.fullmatch(r"2026-\d\d-\d\d \d\d:\d\d", cells[4])


def test_partial_reports_say_so_beside_the_totals() -> None:
    page = Page(rendered(FLEETS["partial"]))
    assert "This report is partial" in page.words
    assert "Nova : cell cell2 does not answer" in page.words
    assert "16 GPUs on 2 hosts, 4 free (partial)" in page.words.replace(" GPU s", " GPUs").replace(" ,", ",")
    assert "partial" not in Page(rendered(fleet_of(2))).words


def test_capacity_has_each_flavor_with_its_limits() -> None:
    row = flavor_row(("a100-8", "8 a100", "at most 2", "19", "19 GPUs free, none in a group of 8\nreserved"))
    text = rendered(fleet_of(2), flavors=[row])
    page = Page(text)
    assert page.problems() == []
    (line,) = page.find(".//*[@id='capacity']/table/tbody/tr")
    assert [" ".join("|".join(cell.itertext()).split()) for cell in line] == [
        "a100-8|8 a100",
        "at most 2",
        "19",
        "19 GPUs free, none in a group of 8|reserved",
    ]
    assert "Capacity" not in Page(rendered(fleet_of(2))).words


@pytest.mark.parametrize(("hosts", "are_open"), [(12, True), (13, False)])
def test_tables_of_many_hosts_are_closed(hosts: int, are_open: bool) -> None:
    tables = Page(rendered(fleet_of(hosts, 1))).find(".//details[@id]")
    assert [table.get("open") is not None for table in tables if table.attrib["id"].startswith("h")] == [
        are_open
    ] * hosts


@pytest.mark.parametrize(("number", "drawings", "shapes"), [(GROUP, GROUP, 0), (GROUP + 1, 0, 1)])
def test_topologies_of_a_large_fleet_are_not_those_of_each_host(number: int, drawings: int, shapes: int) -> None:
    small = machine(bridge("0000:00:02.0", gpu_at("0000:02:00.0")))
    hosts = tuple(small.model_copy(update={"hostname": f"gpu{one:04}"}) for one in range(number))
    page = Page(rendered(fleet_on(*hosts), topologies=Topologies(hosts)))
    assert (len(page.find(".//h4")), len(page.find(".//*[@id='topology']/details"))) == (drawings, shapes)


@pytest.mark.parametrize(
    ("projects", "users", "named"), [({}, {}, False), ({"p": "research"}, {}, True), ({}, {"u": "ada"}, True)]
)
def test_sources_of_the_page_are_named(projects: dict[str, str], users: dict[str, str], named: bool) -> None:
    one = replace(gpu("gpu1", 0, State.FREE), sources=(Source.PLACEMENT, Source.NOVA))
    words = Page(rendered(Fleet(gpus=(one,), projects=projects, users=users))).words
    assert (Source.KEYSTONE.value in words, Source.DATABASE.value in words) == (named, False)


def test_findings_have_code_place_and_remedy() -> None:
    page = Page(rendered(fleet_of(3)))
    text = page.section("findings")
    assert "warning GPU701" in text
    assert "gpu0002 0000:33:00.0" in text
    assert "Remedy: run gpustack cleanup plan" in text


def test_page_replaces_the_former_one_or_leaves_it(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "report"
    path = write(Report(fleet=fleet_of(1), at=AT), directory)
    assert path.stat().st_mode & 0o777 == 0o644
    before = path.read_text(encoding="utf-8")
    broken = replace(fleet_of(1), gpus=(gpu("gpu1", 0, State.FREE), None))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        write(Report(fleet=broken, at=AT), directory)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in directory.iterdir()] == ["index.html"]

"""The page is well-formed, self-contained, escaped and complete."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpustack.base.errors import GpustackError
from gpustack.base.files import write_atomic
from gpustack.base.findings import Code, Finding, Severity
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.join import join
from gpustack.fleet.model import MDEV, Fleet, Gap, HostCount, Source, State
from gpustack.fleet.summary import host_counts
from gpustack.operate.report.hosts import GROUP, TIMES
from gpustack.operate.report.page import (
    Report,
    finding_rows,
    flavor_row,
    free_rows,
    idle,
    parts,
    place,
    projects,
)
from gpustack.operate.report.topologies import Topologies
from support.fleet_answers import server
from support.fleets import A100, HOSTILE, fleet_of, fleet_on, gpu, hostile
from support.page import Page
from support.pci_layouts import bridge, machine
from support.pci_layouts import gpu as gpu_at


def count(host: str, free: int | None, total: int | None = 8) -> HostCount:
    used = 0 if total is None or free is None else total - free
    return HostCount(host=host, model=A100, total=total, free=free, used=used, per_gpu=True)


def test_fragments_are_counted_on_each_host() -> None:
    (row,), unknown = free_rows(Fleet(counts=(count("gpu1", 3), count("gpu2", 5), count("gpu3", 0))))
    assert (row["free"], row["most"], row["fitting"], unknown) == (8, 5, {1: 8, 2: 3, 4: 1, 8: 0}, [])
    assert row["fragments"] == "free GPUs: 8, but no request of 8 fits"


def test_fragments_are_not_claimed_if_a_host_may_be_missing() -> None:
    counts = (count("gpu1", 3), count("gpu3", 3))
    (row,), unknown = free_rows(Fleet(counts=counts))
    assert (row["free"], row["fragments"], unknown) == (6, "free GPUs: 6, but no request of 4 fits", [])
    unlisted = replace(count("gpu2", 0), total=None, free=None, per_gpu=False)
    (row,), unknown = free_rows(Fleet(counts=(*counts, unlisted)))
    assert (row["free"], row["fragments"], unknown) == (6, "", [A100])
    (row,), _unknown = free_rows(Fleet(counts=counts, partial=(Gap(source=Source.NOVA, reason="silent"),)))
    assert row["fragments"] == ""
    (row,), unknown = free_rows(Fleet(counts=(*counts, replace(count("gpu2", 0), per_gpu=False))))
    assert (row["fragments"], unknown) == ("", [])


def test_fragments_of_vgpus_are_counted_on_each_card() -> None:
    vgpu = gpu("gpu1", 0, State.FREE)
    gpus = [
        replace(vgpu, address=f"0000:{bus:02x}:00.0", model="A16-8Q", dev_type=MDEV, units=4, used=used)
        for bus, used in ((1, 1), (2, 1), (3, 4))
    ]
    (row,), _unknown = free_rows(Fleet(counts=host_counts(gpus, Index(Answers()))))
    assert (row["free"], row["most"], row["fitting"]) == (6, 3, {1: 6, 2: 2, 4: 0})
    assert row["fragments"] == "free GPUs: 6, but no request of 4 fits"
    single = [replace(part, units=1, used=0) for part in gpus]
    (row,), _unknown = free_rows(Fleet(counts=host_counts(single, Index(Answers()))))
    assert (row["fitting"], row["fragments"]) == ({1: 3}, "")  # virtual functions with a device each


def test_whole_hosts_are_no_fragments() -> None:
    (row,), _unknown = free_rows(Fleet(counts=(count("gpu1", 8), count("gpu2", 1))))
    assert (row["fitting"][8], row["fragments"]) == (1, "")


def test_sizes_end_with_the_largest_host() -> None:
    (row,), _unknown = free_rows(Fleet(counts=(count("gpu1", 2, total=2),)))
    assert list(row["fitting"]) == [1, 2]
    (row,), _unknown = free_rows(Fleet(counts=(replace(count("gpu1", 40, total=40), model=""),)))
    assert (row["fitting"], row["model"]) == ({1: 40, 2: 20, 4: 10, 8: 5, 16: 2}, "unknown model")
    (row,), _unknown = free_rows(Fleet(counts=(replace(count("gpu1", 0, total=None), used=3),)))
    assert (row["free"], row["fitting"]) == (0, {1: 0, 2: 0})  # as many as are in use, at least


def test_models_with_unknown_free_gpus_are_named() -> None:
    _rows, unknown = free_rows(join(Answers(servers=(server("vm1", "gpu1"),))))
    assert unknown == ["k4200"]


def test_projects_with_most_gpus_come_first() -> None:
    fleet = fleet_of(4)
    rows = projects(fleet)
    assert [row["gpus"] for row in rows] == sorted((row["gpus"] for row in rows), reverse=True)
    assert sum(row["gpus"] for row in rows) == sum(gpu.used for gpu in fleet.gpus)
    named = next(row for row in rows if row["identity"])
    assert fleet.projects[named["identity"]] == named["name"]
    assert named["models"] == f"{named['gpus']} {TIMES} {A100}"
    assert [row["share"] for row in rows] == [
        round(100 * row["gpus"] / sum(row["gpus"] for row in rows), 2) for row in rows
    ]
    assert [row["name"] for row in rows if row["gpus"] == named["gpus"]] == sorted(
        row["name"] for row in rows if row["gpus"] == named["gpus"]
    )
    (unnamed,) = projects(Fleet(gpus=(gpu("gpu1", 0, State.ALLOCATED),)))
    assert (unnamed["name"], unnamed["identity"], unnamed["share"]) == (
        gpu("gpu1", 0, State.ALLOCATED).holders[0].project,
        "",
        100,
    )
    assert projects(Fleet(gpus=(gpu("gpu1", 0, State.FREE),))) == []


def test_gpus_in_use_without_a_holder_belong_to_an_unknown_project() -> None:
    lost = replace(gpu("gpu1", 0, State.ALLOCATED), holders=())
    (row,) = projects(Fleet(gpus=(lost,), counts=(count("gpu1", 0, total=1),)))
    assert (row["name"], row["gpus"], row["instances"]) == ("unknown", 1, 0)


def test_gpus_of_stopped_instances_are_counted() -> None:
    assert idle(fleet_of(3)) == "3 GPUs of instances that do not run (3 SHUTOFF)"
    assert idle(Fleet(gpus=(gpu("gpu1", 6, State.FREE), gpu("gpu1", 0, State.ALLOCATED)))) == ""
    one = gpu("gpu1", 0, State.ALLOCATED)
    stopped = replace(one.holders[0], server=server("vm", "gpu1", status="stopped"))  # as a database has it
    held = replace(one, holders=(stopped,))
    assert idle(Fleet(gpus=(held,))) == "1 GPU of instances that do not run (1 STOPPED)"
    others = [replace(held, state=state) for state in (State.CLAIMED, State.INCONSISTENT)]
    assert idle(Fleet(gpus=tuple(others))).startswith("2 GPUs of")
    unheld = (replace(held, state=State.RESERVED), replace(held, holders=(replace(stopped, migration=True),)))
    assert idle(Fleet(gpus=unheld)) == ""
    assert idle(Fleet(gpus=(replace(one, holders=(replace(stopped, server=None),)),))) == ""


def test_many_messages_of_one_code_are_limited() -> None:
    found = tuple(
        Finding(code=Code("GPU701"), severity=Severity.WARNING, place=f"gpu{n}", message=f"message {n}", remedy="wait")
        for n in range(60)
    )
    (row,) = finding_rows(Fleet(findings=found))
    assert (len(row["messages"]), row["more"]) == (50, 10)
    assert (row["severity"], row["code"], row["remedy"], row["messages"][0]) == (
        "warning",
        "GPU701",
        "wait",
        ("gpu0", "message 0"),
    )
    (row,) = finding_rows(Fleet(findings=found[:50]))
    assert (len(row["messages"]), row["more"]) == (50, 0)


def test_a_flavor_has_the_words_of_capacity() -> None:
    row = flavor_row(["g8", "8 k4200", "at most 3", 32, "1 GPU: reserved (gpu1)\n2 GPUs: in use"])
    assert (row["flavor"], row["gpus"], row["fits"], row["free"]) == ("g8", "8 k4200", "at most 3", "32")
    assert row["limits"] == ["1 GPU: reserved (gpu1)", "2 GPUs: in use"]
    assert len(flavor_row(["f" * 300, "", "", "", ""])["flavor"]) == 80


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
    path = place(directory)
    write_atomic(path, parts(Report(fleet=fleet_of(1), at=AT)), mode=0o644)
    assert path.stat().st_mode & 0o777 == 0o644
    before = path.read_text(encoding="utf-8")
    broken = replace(fleet_of(1), gpus=(gpu("gpu1", 0, State.FREE), None))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        write_atomic(place(directory), parts(Report(fleet=broken, at=AT)), mode=0o644)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in directory.iterdir()] == ["index.html"]


@pytest.mark.parametrize("mask", [0, 0o077])
def test_only_its_owner_writes_the_directory_of_the_page(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        path = place(tmp_path / "a/b")
        write_atomic(path, parts(Report(fleet=fleet_of(1), at=AT)), mode=0o644)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(of.stat().st_mode) for of in (tmp_path / "a", tmp_path / "a/b")}
    assert (modes, stat.S_IMODE(path.stat().st_mode)) == ({0o755}, 0o644 & ~mask)


@pytest.mark.parametrize("kind", ["file", "dangling", "page", "empty", "pipe", "directory", "link"])
def test_only_a_page_of_gpustack_is_replaced(tmp_path: Path, kind: str) -> None:
    """``--out .`` in the directory of a web server destroys no other page."""
    out = tmp_path / "out"
    if kind not in ("file", "dangling"):
        out.mkdir()
    if kind == "file":
        out.write_text("mine")
    elif kind == "dangling":
        out.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(out / "index.html")
    elif kind == "directory":
        (out / "index.html").mkdir()
    elif kind == "link":
        (tmp_path / "mine").write_text("mine")
        (out / "index.html").symlink_to("../mine")
    else:
        (out / "index.html").write_text("<html><title>Our cloud</title>" if kind == "page" else "")
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    with pytest.raises(GpustackError, match=r"(?s)(is kept|nothing was done).*name another directory"):
        place(out)
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before

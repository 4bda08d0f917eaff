"""The chain of records that leads to a GPU of an instance."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.columns import described
from gpustack.base.findings import Code, finding
from gpustack.novadb.model import Request
from gpustack.operate.why.links import COLUMNS, HOST_COLUMNS, HOST_LINKS, HostGpu, counts, held_gpus

ONE, TWO = "0000:81:00.0", "0000:82:00.0"
REQUESTS = [Request(request_id="r1", count=1, alias_name="k4200")]


def row(address: str, **more: Any) -> dict[str, Any]:
    return {"address": address, "deleted": 0, "request_id": "r1", "parent_addr": None, **more}


@pytest.mark.parametrize(
    ("rows", "allocated", "used", "links"),
    [
        ([row(ONE)], {ONE}, {ONE}, [(ONE, "")]),
        ([], {ONE}, {ONE}, [(ONE, "row")]),
        ([row(ONE)], set(), {ONE}, [(ONE, "Placement")]),
        ([row(ONE)], {ONE}, set(), [(ONE, "domain")]),
        ([row(ONE)], {TWO}, {ONE}, [(ONE, "Placement"), (TWO, "row")]),
        ([row(ONE, deleted=7)], None, None, [("", "row")]),
        (None, None, {ONE}, [(ONE, "")]),
        (None, None, None, []),
        ([row("0000:81:00.4", parent_addr=ONE)], {ONE}, None, [("0000:81:00.4", "")]),
    ],
)
def test_the_first_record_without_the_gpu_is_named(
    rows: list[dict[str, Any]] | None, allocated: set[str] | None, used: set[str] | None, links: list[tuple[str, str]]
) -> None:
    found = list(held_gpus("vm", {"k4200": 1}, rows, REQUESTS, allocated, used))
    assert [(gpu.address, gpu.broken) for gpu in found] == links
    assert all((gpu.finding is None) == (not gpu.broken) for gpu in found)


def test_a_broken_link_names_the_records_that_have_the_gpu() -> None:
    (gpu,) = held_gpus("vm", {"k4200": 1}, [], REQUESTS, {ONE}, {ONE})
    assert gpu.finding is not None
    assert (gpu.finding.place, "it is in: Placement, domain" in gpu.finding.message) == (f"vm {ONE}", True)
    (missing, _second) = held_gpus("vm", {"k4200": 1, "m60": 1}, [], REQUESTS, None, set())
    assert missing.finding is not None
    assert (missing.finding.place, "no record has it" in missing.finding.message) == ("vm", True)
    assert described(COLUMNS, missing) == {
        "address": None,
        "alias": None,
        "row": False,
        "placement": None,
        "domain": False,
        "broken": "row",
    }
    (held,) = held_gpus("vm", {"k4200": 1}, [row(ONE)], REQUESTS, {ONE}, {ONE})
    assert [column.cell(held) for column in COLUMNS] == [ONE, "k4200", "yes", "yes", "yes", "-"]


def host_gpu(broken: str = "", **more: Any) -> HostGpu:
    """A GPU whose links up to this one are sound, and this one is broken."""
    records = dict.fromkeys(HOST_LINKS, True) | ({broken: False} if broken else {})
    return HostGpu(host="gpu1", address=ONE, **{"state": "free", "records": records, **more})


@pytest.mark.parametrize(
    ("link", "code", "broken"),
    [
        ("", None, False),
        ("host", "GPU589", True),
        ("spec", "GPU590", False),  # an operator chose it
        ("ready", "GPU010", True),
        ("bound", "GPU010", True),
        ("device_spec", "GPU591", True),
        ("row", "GPU592", True),
        ("Placement", "GPU593", True),
        ("service", "GPU010", True),
        ("in service", "GPU594", False),
    ],
)
def test_each_link_of_a_host_has_its_finding(link: str, code: str | None, broken: bool) -> None:
    reasons = (finding(Code.BOUND_TO_HOST_DRIVER, place="gpu1", drivers="nouveau"),)
    gpu = host_gpu(link, because="fan", reasons=reasons, model="K4200")
    assert ([entry.code.value for entry in gpu.findings], gpu.is_broken) == ([code] if code else [], broken)
    assert all("gpu1" in entry.place for entry in gpu.findings)
    cells = {column.title: column.cell(gpu) for column in HOST_COLUMNS}
    assert (cells["Broken link"], cells["Address"], cells["State"], cells["Model"]) == (
        link or "-",
        ONE,
        "free",
        "K4200",
    )


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        (
            [host_gpu(), host_gpu(state="allocated")],
            "2 in the host, 2 ready, 2 in device_spec, 2 in Nova, 2 in Placement, 1 free",
        ),
        (
            [host_gpu(), host_gpu("row", records={**dict.fromkeys(HOST_LINKS, True), "row": False, "Placement": None})],
            "2 in the host, 2 ready, 2 in device_spec, 1 in Nova (restart nova-compute), 1 in Placement, 1 free",
        ),
        ([host_gpu("device_spec")], "1 in the host, 1 ready, 0 in device_spec, 1 in Nova, 1 in Placement, 0 free"),
        # Its links up to the row are broken by another cause: a restart does not help.
        (
            [host_gpu("ready", records=dict.fromkeys(HOST_LINKS, False))],
            "0 in the host, 0 ready, 0 in device_spec, 0 in Nova, 0 in Placement, 0 free",
        ),
    ],
)
def test_gpus_are_counted_link_by_link(gpus: list[HostGpu], text: str) -> None:
    assert counts(gpus) == text


def test_the_alias_is_that_of_the_request() -> None:
    (gpu,) = held_gpus("vm", {"k4200": 1}, [row(ONE)], REQUESTS, None, None)
    assert gpu.alias == "k4200"

"""The chain of records that leads to a GPU of an instance."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.novadb.model import Request
from gpustack.operate.why.links import held_gpus

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


def test_the_alias_is_that_of_the_request() -> None:
    (gpu,) = held_gpus("vm", {"k4200": 1}, [row(ONE)], REQUESTS, None, None)
    assert gpu.alias == "k4200"

"""The columns of `gpustack health`."""

import pytest

from gpustack.base.columns import described
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.health.check import check
from gpustack.hosts.health.table import COLUMNS
from support.host_samples import function, raw_host


@pytest.mark.parametrize(("link", "width"), [(None, "-"), ({"width": 8, "max_width": 16}, "x8")])
def test_the_link_is_shown_by_its_width(link: dict[str, int] | None, width: str) -> None:
    (health,) = check(parse_host(raw_host(function("0000:81:00.0", link=link)), "gpu01")).gpus
    assert {c.title: c.cell(health) for c in COLUMNS}["Link"] == width
    assert described(COLUMNS, health)["link_width"] == (link or {}).get("width")

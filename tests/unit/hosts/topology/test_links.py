"""Links as people read them, and which of them lack lanes."""

from __future__ import annotations

import pytest

from gpustack.hosts.facts.model import Function
from gpustack.hosts.topology.links import Rate, link
from support.host_samples import function, host


def end(now: str, highest: str) -> Function:
    """One end of a link, from ``x16 8.0`` now and at most."""
    (width, speed), (max_width, max_speed) = (text.split() for text in (now, highest))
    values = {
        "speed": None if speed == "-" else f"{speed} GT/s PCIe",
        "width": int(width[1:]),
        "max_speed": f"{max_speed} GT/s PCIe",
        "max_width": int(max_width[1:]),
    }
    return host(function("0000:05:00.0", link=values)).pci[0]


@pytest.mark.parametrize(
    ("card", "port", "text", "narrow"),
    [
        (("x16 8.0", "x16 8.0"), ("x16 8.0", "x16 8.0"), "x16 Gen3", False),
        # An idle GPU.
        (("x16 2.5", "x16 8.0"), ("x16 2.5", "x16 8.0"), "x16 Gen1 of x16 Gen3", False),
        # A card in a slot with fewer lanes, or of an earlier generation.
        (("x8 16.0", "x16 16.0"), ("x8 16.0", "x8 16.0"), "x8 Gen4, card x16 Gen4", False),
        (("x16 16.0", "x16 32.0"), ("x16 16.0", "x16 16.0"), "x16 Gen4, card x16 Gen5", False),
        # A port of more lanes than the card.
        (("x2 16.0", "x2 16.0"), ("x2 16.0", "x16 16.0"), "x2 Gen4", False),
        # Lost lanes.
        (("x8 8.0", "x16 8.0"), ("x8 8.0", "x16 8.0"), "x8 Gen3 of x16 Gen3", True),
        (("x1 2.5", "x16 32.0"), ("x1 2.5", "x8 16.0"), "x1 Gen1 of x8 Gen4, card x16 Gen5", True),
        # A speed that is no generation, and one that could not be read.
        (("x16 20.0", "x16 20.0"), ("x16 20.0", "x16 20.0"), "x16 20 GT/s", False),
        (("x16 -", "x16 8.0"), ("x16 -", "x16 8.0"), "x16", False),
        # A suspended device answers with ones: 63 lanes.
        (("x63 -", "x16 8.0"), ("x16 8.0", "x16 8.0"), "link unknown, of x16 Gen3", False),
        (("x63 -", "x63 8.0"), ("x16 8.0", "x16 8.0"), "link unknown, of x16 Gen3", False),
    ],
)
def test_a_link_with_both_ends(card: tuple[str, str], port: tuple[str, str], text: str, narrow: bool) -> None:
    found = link(end(*card), end(*port))
    assert found is not None
    assert (str(found), found.is_narrow) == (text, narrow)


def test_without_a_port_no_lane_is_missed() -> None:
    """Facts may lack the port, and a virtual machine may have none."""
    found = link(end("x8 2.5", "x16 8.0"), None)
    assert found is not None
    assert (str(found), found.is_narrow) == ("x8 Gen1 of x16 Gen3", False)


def test_conventional_pci_has_no_link() -> None:
    assert link(host(function("0000:05:00.0")).pci[0], end("x16 8.0", "x16 8.0")) is None


def test_a_link_without_values_is_no_text() -> None:
    assert str(link(host(function("0000:05:00.0", link={})).pci[0], None)) == ""
    assert str(Rate()) == ""

"""Bars of refused requests."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from gpustack.operate.capacity.plot import bar, svg
from gpustack.operate.capacity.simulate import Outcome, Tally


@pytest.mark.parametrize(("share", "text"), [(0, ""), (0.5, "█" * 10), (1, "█" * 20), (0.004, "▏"), (0.26, "█████▎")])
def test_a_bar_has_eighths(share: float, text: str) -> None:
    assert bar(share) == text


def test_a_picture_has_a_bar_for_each_flavor_and_setting() -> None:
    outcomes = [
        Outcome(setting=f"<{name}>", tallies={"g&1": Tally(requests=4, refused=refused)}, use=0, fragments=0)
        for name, refused in (("a", 1), ("b", 4))
    ]
    root = ET.fromstring(svg(outcomes))  # noqa: S314 - our own text
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["Refused requests", "g&1", "<a>", "25.0%", "<b>", "100.0%"]
    widths = [element.get("width") for element in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths == ["100.0", "400.0"]

"""The picture of the README shows the recorded demo."""

from __future__ import annotations

import importlib.util
import re
from html import unescape
from importlib.machinery import SourceFileLoader
from pathlib import Path

TOP = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_loader("picture", SourceFileLoader("picture", str(TOP / "tools/demo-picture")))
assert SPEC is not None
assert SPEC.loader is not None
picture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(picture)
RECORDED = picture.TEXT.read_text(encoding="utf-8")


def test_the_picture_is_drawn_from_the_recorded_text() -> None:
    assert picture.draw(RECORDED) == picture.PICTURE.read_text(encoding="utf-8")


def test_the_demo_prints_at_most_eighty_lines_that_fit_a_terminal() -> None:
    lines = RECORDED.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 110


def test_every_recorded_line_is_in_a_frame() -> None:
    drawn = [unescape(text) for text in re.findall(r">([^<]*)</text>", picture.draw(RECORDED))]
    assert drawn == [line for line in RECORDED.splitlines() if line]


def test_a_frame_is_a_chapter() -> None:
    frames = picture.frames("intro\n\n1. one\na\n\n2. two\nb\n\n3. three\nc\n\nend\n")
    assert [frame[0] for frame in frames] == ["intro", "2. two", "3. three"]
    assert frames[-1][-1] == "end"

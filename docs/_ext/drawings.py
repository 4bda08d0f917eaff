"""Drawings as SVG inside HTML, from the text of ``{drawing}`` directives; lines and letters have the page's colour.

A row is a line of boxes, ``A -> B -> C``; text after ``|`` is a second line in the box, and a row ``---`` leaves a gap.
A line ``= text`` is a title. ``!`` before a box makes it one that blocks, ``+`` one that passes.
"""

from html import escape
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_LETTER, _BOX, _PAD, _ARROW = 7.3, 44, 10, 34
_MARKS = {"!": "blocked", "+": "passed"}


def _box(text: str, left: float, top: float) -> tuple[list[str], float]:
    mark = _MARKS.get(text[0])
    lines = [line.strip() for line in text.lstrip("!+ ").split("|")]
    width = max(len(line) for line in lines) * _LETTER + 2 * _PAD
    style = f' class="{mark}"' if mark else ""
    shapes = [f'<rect x="{left}" y="{top}" width="{width:.0f}" height="{_BOX}" rx="5"{style}/>']
    first = top + (27 if len(lines) == 1 else 18)
    shapes += [
        f'<text x="{left + _PAD}" y="{first + number * 16}">{escape(line)}</text>' for number, line in enumerate(lines)
    ]
    return shapes, width


def _row(line: str, top: float) -> tuple[list[str], float]:
    shapes: list[str] = []
    left = 2.0
    for number, text in enumerate(line.split("->")):
        if number:
            middle = top + _BOX / 2
            shapes.append(f'<path d="M{left + 4} {middle} h{_ARROW - 8} m-6 -4 l6 4 l-6 4"/>')
            left += _ARROW
        box, width = _box(text.strip(), left, top)
        shapes += box
        left += width
    return shapes, left


def drawing(lines: list[str], title: str) -> str:
    """The SVG of these lines."""
    shapes: list[str] = []
    top, widest = 2.0, 0.0
    for line in lines:
        if line.startswith("="):
            shapes.append(f'<text x="2" y="{top + 16}" class="title">{escape(line[1:].strip())}</text>')
            widest = max(widest, len(line) * _LETTER)
            top += 26
        elif line == "---":
            top += 12
        else:
            row, width = _row(line, top)
            shapes += row
            widest, top = max(widest, width), top + _BOX + 12
    size = f'viewBox="0 0 {widest + 4:.0f} {top:.0f}" width="{widest + 4:.0f}"'
    return f'<svg class="drawing" role="img" aria-label="{escape(title)}" {size}>{"".join(shapes)}</svg>'


class Drawing(SphinxDirective):
    """``{drawing} TITLE``, with a row of boxes on each line."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[Any]:
        title = self.arguments[0]
        caption = f"<figcaption>{escape(title)}</figcaption>"
        html = f'<figure class="drawing">{drawing(list(self.content), title)}{caption}</figure>'
        return [nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}

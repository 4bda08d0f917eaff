"""Draws the floors of the table in ``explanation/architecture.md``."""

import re
from html import escape
from pathlib import Path

_HEIGHT, _GAP, _LETTER, _WIDTH = 30, 8, 8, 780


def floors(page: Path) -> dict[int, list[str]]:
    """The packages of each floor."""
    rows = re.findall(r"^\| (\d+) \| (`.+?) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    packages: dict[int, list[str]] = {}
    for floor, names in rows:
        packages.setdefault(int(floor), []).extend(re.findall(r"`(\w+)`", names))
    return packages


def picture(page: Path) -> str:
    """An SVG with a row of boxes for each floor, the highest first."""
    shapes: list[str] = []
    top = _GAP
    for floor, names in sorted(floors(page).items(), reverse=True):
        shapes.append(f'<text x="{_GAP}" y="{top + 20}" fill="gray">{floor}</text>')
        left = 40
        for name in names:
            width = len(name) * _LETTER + 2 * _GAP
            box = f'x="{left}" y="{top}" width="{width}" height="{_HEIGHT}" rx="4"'
            shapes.append(f'<rect {box} fill="none" stroke="gray"/>')
            shapes.append(f'<text x="{left + _GAP}" y="{top + 20}" fill="gray">{escape(name)}</text>')
            left += width + _GAP
        top += _HEIGHT + _GAP
    size = f'viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}"'
    font = 'font-family="monospace" font-size="13"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>', *shapes, "</svg>", ""])

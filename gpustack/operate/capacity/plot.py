"""Bars of refused requests: as text, and as SVG. Pure."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from gpustack.operate.capacity.simulate import Outcome

_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR, _GAP, _LEFT, _SPAN = 22, 6, 260, 400
_COLORS = ("#b3261e", "#1b6e3c", "#2457a6", "#7a4fa3", "#8a6d1b")


def bar(share: float, width: int = _WIDTH) -> str:
    """A bar of blocks for a part of 1."""
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def svg(outcomes: Sequence[Outcome]) -> str:
    """A picture with one bar for each flavor and setting: the part of its requests that is refused."""
    flavors = list(dict.fromkeys(flavor for outcome in outcomes for flavor in outcome.tallies))
    parts = [_text(10, 24, "Refused requests", bold=True)]
    top = 54
    for flavor in flavors:
        parts.append(_text(10, top, flavor, bold=True))
        top += 8
        for number, outcome in enumerate(outcomes):
            share = outcome.tallies[flavor].share if flavor in outcome.tallies else 0.0
            color = _COLORS[number % len(_COLORS)]
            parts.append(_text(20, top + _BAR - 6, outcome.setting))
            parts.append(
                f'<rect x="{_LEFT}" y="{top}" width="{max(share * _SPAN, 1):.1f}" height="{_BAR}" fill="{color}"/>'
            )
            parts.append(_text(_LEFT + share * _SPAN + 8, top + _BAR - 6, f"{share:.1%}"))
            top += _BAR + _GAP
        top += 26
    width = _LEFT + _SPAN + 80
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}"'
        ' font-family="sans-serif" font-size="13">\n<title>Refused requests</title>\n'
        f'<rect width="{width}" height="{top}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{weight} fill="#1c1c1c">{escape(text)}</text>'

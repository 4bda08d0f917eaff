"""PCI Express links: the rate now, and the rate that both ends support.

An idle GPU lowers its link speed by itself, so only a missing lane is a fault, never a low speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from gpustack.hosts.facts.model import Function

_Number = TypeVar("_Number", int, float)
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
# A suspended or lost device answers with ones in all bits: 63 lanes.
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Lanes, and GT/s of each lane; None if unknown."""

    width: int | None = None
    speed: float | None = None

    def __str__(self) -> str:
        """``x16 Gen4``; empty if both are unknown."""
        width = f"x{self.width}" if self.width else ""
        generation = _GENERATIONS.get(self.speed) if self.speed else None
        speed = f"Gen{generation}" if generation else f"{self.speed:g} GT/s" if self.speed else ""
        return f"{width} {speed}".strip()

    def reaches(self, other: Rate) -> bool:
        """Whether this rate is not below another one, as far as both are known."""
        pairs = ((self.width, other.width), (self.speed, other.speed))
        return all(ours is None or theirs is None or ours >= theirs for ours, theirs in pairs)


@dataclass(frozen=True, kw_only=True)
class Link:
    """The link from a function to the port above it.

    :ivar now: the rate at the moment.
    :ivar limit: the highest rate that both ends support; of the function alone if the port's rate is unknown.
    :ivar own: the highest rate of the function.
    :ivar has_port: whether the port's highest width is known.
    :ivar on_card: whether both ends are on the same card.
    """

    now: Rate
    limit: Rate
    own: Rate
    has_port: bool
    on_card: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether the link has fewer lanes than both ends support."""
        return self.has_port and not Rate(width=self.now.width).reaches(Rate(width=self.limit.width))

    def __str__(self) -> str:
        """``x16 Gen1 of x16 Gen3``, or ``x8 Gen4, card x16 Gen5``; empty if nothing is known."""
        if not (now := str(self.now)):
            return f"link unknown, of {self.limit}" if str(self.limit) else ""
        limited = "" if self.now.reaches(self.limit) else f" of {self.limit}"
        own = "" if self.limit.reaches(self.own) else f", card {self.own}"
        return f"{'on the card ' if self.on_card else ''}{now}{limited}{own}"


def link(function: Function, port: Function | None, *, on_card: bool = False) -> Link | None:
    """The link from a function to a port above it; None if the function has none (conventional PCI)."""
    if function.link is None:
        return None
    own = _highest(function)
    other = _highest(port) if port is not None else Rate()
    return Link(
        now=Rate(width=_width(function.link.width), speed=_speed(function.link.speed)),
        limit=Rate(width=_least((own.width, other.width)), speed=_least((own.speed, other.speed))),
        own=own,
        has_port=own.width is not None and other.width is not None,
        on_card=on_card,
    )


def _highest(function: Function) -> Rate:
    link = function.link
    return Rate() if link is None else Rate(width=_width(link.max_width), speed=_speed(link.max_speed))


def _width(lanes: int | None) -> int | None:
    return lanes if lanes in _WIDTHS else None


def _speed(text: str | None) -> float | None:
    match = _SPEED.match(text or "")
    return float(match[1]) if match else None


def _least(values: Iterable[_Number | None]) -> _Number | None:
    return min((value for value in values if value is not None), default=None)

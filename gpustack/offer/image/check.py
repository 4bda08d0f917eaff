"""Compare images with the requirements of flavors: one finding for each cause, with all flavors that it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, Severity, finding
from gpustack.offer.image.guest import guest_problems
from gpustack.offer.image.hardware import hardware_problems
from gpustack.offer.image.model import FlavorNeeds, Image, Pair
from gpustack.offer.image.problem import Problem
from gpustack.offer.image.room import room_problems

_SHOWN_FLAVORS = 4


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An image with its flavors and its findings."""

    pair: Pair
    findings: tuple[Finding, ...]


def check(pairs: Sequence[Pair]) -> tuple[Checked, ...]:
    """Check each image for its flavors."""
    names = [pair.image.name for pair in pairs]
    return tuple(
        Checked(pair=pair, findings=tuple(_findings(pair, unique=names.count(pair.image.name) == 1))) for pair in pairs
    )


def unmatched(names: Sequence[str]) -> list[Finding]:
    """Report names that mean no image of the cloud."""
    return [finding(Code.IMAGE_ABSENT, place=name) for name in names]


def _findings(pair: Pair, *, unique: bool) -> Iterator[Finding]:
    image = pair.image
    place = image.name if unique and image.name else f"{image.name or 'without a name'} ({image.id})"
    if image.status != "active":
        yield finding(Code.IMAGE_ABSENT, place=place)
        return
    flavors: dict[tuple[Code, Severity | None, tuple[tuple[str, Any], ...]], list[str]] = {}
    for needs in pair.flavors:
        for problem in _problems(image, needs):
            key = (problem.code, problem.severity, tuple(problem.values.items()))
            flavors.setdefault(key, []).append(needs.name)
    for (code, severity, values), names in flavors.items():
        listed = listed_names(names)
        yield finding(code, place=place, severity=severity, **dict(values), flavors=listed, image=image.id)


def _problems(image: Image, needs: FlavorNeeds) -> Iterator[Problem]:
    yield from hardware_problems(image, needs)
    yield from guest_problems(image, needs)
    yield from room_problems(image, needs)


def listed_names(names: Sequence[str]) -> str:
    """Names in one line; a long list is cut."""
    more = len(names) - _SHOWN_FLAVORS
    return ", ".join(names[:_SHOWN_FLAVORS]) + (f" and {more} more" if more > 0 else "")
